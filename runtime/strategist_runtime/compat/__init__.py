"""What differs between devices and versions of torch; the only user of torch's private names."""
