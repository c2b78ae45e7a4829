"""Ticks of logarithmic axes."""

from strategist.report.plot_axes import axis_of


def test_narrow_and_wide_ranges_have_three_to_twelve_ticks() -> None:
    for low, high in ((10.4, 25.3), (99.0, 101.0), (0.2, 0.21), (1.0, 1e7), (5.0, 5.0)):
        axis = axis_of([low, high], 100.0, 1.05)
        ticks = axis.even_ticks()
        assert 3 <= len(ticks) <= 12
        assert all(0 <= axis.at(tick) <= 100 for tick in ticks)
    assert axis_of([1.0, 500.0], 100.0, 1.0).even_ticks() == [1.0, 10.0, 100.0]  # the low end of a long axis has ticks, too
