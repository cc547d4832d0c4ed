"""The operator as a KernelBench problem: Model is PyTorch's, ModelNew ours, with the same arguments and parameters."""
import torch
from torch import nn

from convnorm.nn import Conv1dGroupNorm


class Model(nn.Module):
    """Conv1d without bias, then GroupNorm, as PyTorch's own operators."""

    def __init__(self, in_channels, out_channels, num_groups, kernel_size=3, stride=1, padding=1, dilation=1, eps=1e-5,
                 affine=True):
        super().__init__()
        conv = nn.Conv1d(in_channels, out_channels, kernel_size, stride, padding, dilation, bias=False)
        norm = nn.GroupNorm(num_groups, out_channels, eps, affine)
        self.weight, self.gamma, self.beta = conv.weight, norm.weight, norm.bias
        self.numbers = stride, padding, dilation, num_groups, eps

    def forward(self, x):
        stride, padding, dilation, groups, eps = self.numbers
        z = nn.functional.conv1d(x, self.weight, None, stride, padding, dilation)
        return nn.functional.group_norm(z, groups, self.gamma, self.beta, eps)


class ModelNew(Conv1dGroupNorm):
    """The same in one pass."""

    def __init__(self, in_channels, out_channels, num_groups, kernel_size=3, stride=1, padding=1, dilation=1, eps=1e-5,
                 affine=True):
        super().__init__(in_channels, out_channels, num_groups, kernel_size, stride, padding, dilation, eps, affine)


batch_size, in_channels, out_channels, length, num_groups = 16, 128, 256, 1024, 32


def get_inputs():
    return [torch.randn(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, num_groups]
