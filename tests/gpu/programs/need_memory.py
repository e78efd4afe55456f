"""Ask PyTorch for four GiB of the first GPU; where they are not free it says so in its own words."""

import torch

torch.empty(4 << 30, dtype=torch.uint8, device="cuda:0")
print("ok")
