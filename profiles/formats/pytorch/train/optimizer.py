def mesh_groups(parameters):
    """Groups of an optimizer: parameters on different meshes cannot share a kernel."""
    groups = {}
    for parameter in parameters:
        groups.setdefault(parameter.device_mesh, []).append(parameter)
    return [{"params": members} for members in groups.values()]
