"""A device whose memory is small."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class SmallMemory(TorchDispatchMode):
    """Within, torch has room for no product of more than `limit` numbers; `products` counts those that it had."""

    def __init__(self, limit):
        super().__init__()
        self.limit, self.products = limit, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if function in (torch.ops.aten.mm.default, torch.ops.aten.matmul.default):
            if found.numel() > self.limit:
                raise torch.cuda.OutOfMemoryError(
                    "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity"
                )
            self.products += 1
        return found
