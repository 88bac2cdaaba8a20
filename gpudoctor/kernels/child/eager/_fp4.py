"""NVIDIA's 4-bit floats: sign, 2 bits of exponent, 1 of mantissa, packed two to a byte; 16 along K share an e4m3 scale.

Scales lie as cuBLAS wants them: tiles of 128 rows × 4, each as 32 × 16 (cuBLAS documentation, "1D block scaling factors
layout", release 12.9, May 2025).
"""

from __future__ import annotations

from typing import Any, NamedTuple

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""By the three bits below the sign."""
_BETWEEN = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
BLOCK = 16


class Packed(NamedTuple):
    """A matrix whose rows run along K."""

    codes: Any
    """uint8 of shape (rows, K / 2)."""
    scales: Any
    """e4m3, flat, in the order of cuBLAS."""
    row_scales: Any
    """float32 of shape (rows): the scale of every block of a row."""

    @classmethod
    def of(cls, torch: Any, numbers: Any, row_scales: Any) -> Packed:
        """The nearest 4-bit floats; `row_scales` must be exact in e4m3."""
        numbers = numbers.contiguous()
        codes = torch.bucketize(numbers.abs(), torch.tensor(_BETWEEN, device=numbers.device)).to(torch.uint8)
        codes = codes | ((numbers < 0).to(torch.uint8) << 3)
        blocks = row_scales[:, None].expand(-1, numbers.shape[1] // BLOCK).to(torch.float8_e4m3fn)
        return cls(codes[:, ::2] | (codes[:, 1::2] << 4), _tiled(torch, blocks), row_scales)

    def values(self, torch: Any) -> Any:
        """As torch's type of them."""
        return self.codes.view(torch.float4_e2m1fn_x2)

    def unpacked(self, torch: Any) -> Any:
        """float32 of shape (rows, K), scaled."""
        halves = torch.stack([self.codes & 15, self.codes >> 4], -1).flatten(1).long()
        numbers = torch.tensor([*MAGNITUDES, *(-one for one in MAGNITUDES)])[halves]
        return numbers * self.row_scales[:, None].float()


def _tiled(torch: Any, blocks: Any) -> Any:
    rows, columns = blocks.shape
    high, wide = -(-rows // 128), -(-columns // 4)
    padded = torch.zeros(high * 128, wide * 4, device=blocks.device)
    padded[:rows, :columns] = blocks.float()
    tiles = padded.view(high, 128, wide, 4).permute(0, 2, 1, 3).reshape(-1, 4, 32, 4).transpose(1, 2)
    return tiles.reshape(-1).to(torch.float8_e4m3fn)
