import torch


def make_optimizer(parameters):
    # if: several_meshes
    """Over the parameters that are trained; those on different meshes cannot share a kernel, so they are groups."""
    # end: several_meshes
    # if: lora
    parameters = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    # end: lora
    # if: several_meshes
    by_mesh = {}
    for parameter in parameters.values():
        by_mesh.setdefault(parameter.device_mesh, []).append(parameter)
    groups = [{"params": members} for members in by_mesh.values()]
    # end: several_meshes
    # if: sgd and several_meshes
    return torch.optim.SGD(groups, lr=LEARNING_RATE, foreach=OPTIMIZER_KERNEL != "for_loop")
    # end: sgd and several_meshes
    # if: sgd and not several_meshes
    return torch.optim.SGD(parameters.values(), lr=LEARNING_RATE, foreach=OPTIMIZER_KERNEL != "for_loop")
    # end: sgd and not several_meshes
    # if: not sgd and fused and several_meshes
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    # end: not sgd and fused and several_meshes
    # if: not sgd and fused and not several_meshes
    optimizer = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    # end: not sgd and fused and not several_meshes
    # if: not sgd and not fused
    foreach = OPTIMIZER_KERNEL == "foreach"
    # end: not sgd and not fused
    # if: not sgd and not fused and several_meshes
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=foreach)
    # end: not sgd and not fused and several_meshes
    # if: not sgd and not fused and not several_meshes
    optimizer = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=foreach)
    # end: not sgd and not fused and not several_meshes
    # if: not sgd
    for parameter in parameters.values():  # states from the beginning on, so that a checkpoint can be read into them
        moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
        # if: fused
        optimizer.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
        # end: fused
        # if: not fused
        optimizer.state[parameter] = {"step": torch.zeros(()), **moments}
        # end: not fused
    return optimizer
    # end: not sgd
