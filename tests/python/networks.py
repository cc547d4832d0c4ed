"""A conditional U-net of the kind that diffusion policies use, written from its public description."""
import torch
from torch import nn


def conv_block(in_channels, out_channels, kernel=5, groups=8):
    return nn.Sequential(nn.Conv1d(in_channels, out_channels, kernel, padding=kernel // 2),
                         nn.GroupNorm(groups, out_channels), nn.Mish())


class ConditionalResidualBlock(nn.Module):
    """Two convolution blocks; the condition scales and shifts what the first one gives."""

    def __init__(self, in_channels, out_channels, condition):
        super().__init__()
        self.out_channels = out_channels
        self.blocks = nn.ModuleList([conv_block(in_channels, out_channels), conv_block(out_channels, out_channels)])
        self.cond_encoder = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * out_channels), nn.Unflatten(-1, (-1, 1)))
        self.residual_conv = nn.Conv1d(in_channels, out_channels, 1) if in_channels != out_channels else nn.Identity()

    def forward(self, x, cond):
        out = self.blocks[0](x)
        embed = self.cond_encoder(cond)
        embed = embed.reshape(embed.shape[0], 2, self.out_channels, 1)
        out = embed[:, 0, ...] * out + embed[:, 1, ...]
        return self.blocks[1](out) + self.residual_conv(x)


class StepEncoding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, step):
        rates = torch.exp(torch.arange(self.width // 2, device=step.device) * (-9.21 / (self.width // 2 - 1)))
        angles = step[:, None].float() * rates[None, :]
        return torch.cat((angles.sin(), angles.cos()), -1).to(step.dtype)


class ConditionalUnet(nn.Module):
    """(B, horizon, actions), step (B), observation (B, condition) -> (B, horizon, actions)."""

    def __init__(self, actions=7, condition=10, step_width=16, widths=(16, 32)):
        super().__init__()
        self.step_encoder = nn.Sequential(StepEncoding(step_width), nn.Linear(step_width, 4 * step_width), nn.Mish(),
                                          nn.Linear(4 * step_width, step_width))
        cond = step_width + condition
        pairs = list(zip((actions, *widths[:-1]), widths))
        self.down = nn.ModuleList(nn.ModuleList([
            ConditionalResidualBlock(a, b, cond), ConditionalResidualBlock(b, b, cond),
            nn.Conv1d(b, b, 3, 2, 1) if b != widths[-1] else nn.Identity()]) for a, b in pairs)
        self.mid = nn.ModuleList(ConditionalResidualBlock(widths[-1], widths[-1], cond) for _ in range(2))
        self.up = nn.ModuleList(nn.ModuleList([
            ConditionalResidualBlock(2 * b, a, cond), ConditionalResidualBlock(a, a, cond),
            nn.ConvTranspose1d(a, a, 4, 2, 1)]) for a, b in reversed(pairs[1:]))
        self.final = nn.Sequential(conv_block(widths[0], widths[0]), nn.Conv1d(widths[0], actions, 1))

    def forward(self, sample, step, observation):
        x = sample.transpose(1, 2)
        cond = torch.cat((self.step_encoder(step), observation), -1)
        skips = []
        for first, second, down in self.down:
            x = second(first(x, cond), cond)
            skips.append(x)
            x = down(x)
        for block in self.mid:
            x = block(x, cond)
        for first, second, up in self.up:
            x = up(second(first(torch.cat((x, skips.pop()), 1), cond), cond))
        return self.final(x).transpose(1, 2)


def value_function(unet, channels, widths, sample_size):
    """A planner's U-net by diffusers' UNet1DModel, `unet`, a level for each width: (B, channels, L), step -> as it."""
    return unet(sample_size=sample_size,
                in_channels=channels,
                out_channels=channels,
                time_embedding_type="positional",
                use_timestep_embedding=True,
                flip_sin_to_cos=False,
                freq_shift=1,
                act_fn="mish",
                norm_num_groups=8,
                layers_per_block=1,
                downsample_each_block=False,
                down_block_types=("DownResnetBlock1D",) * len(widths),
                up_block_types=("UpResnetBlock1D",) * (len(widths) - 1),
                mid_block_type="MidResTemporalBlock1D",
                out_block_type="OutConv1DBlock",
                block_out_channels=widths)
