"""KV that was computed again, beside what is stored. Numbers take torch."""

import unittest
from types import SimpleNamespace
from typing import Any

from kvstored.vllm import compare

try:
    import torch
except ImportError:
    torch: Any = None  # type: ignore[no-redef]

LAYERS, BLOCKS, HEADS, TOKENS, SIZE = 3, 2, 4, 8, 16


class Alarms(unittest.TestCase):
    def test_three_within_an_hour(self) -> None:
        alarm = compare.Alarm()
        with self.assertNoLogs("kvstored.vllm"):
            for now in (0.0, 1000.0, 3601.0):
                self.assertFalse(alarm.add("space", now))
        with self.assertLogs("kvstored.vllm", "WARNING"):
            self.assertTrue(alarm.add("space", 4000.0))
        with self.assertNoLogs("kvstored.vllm"):
            self.assertFalse(alarm.add("space", 4001.0))

    def test_forms_that_are_not_known(self) -> None:
        self.assertEqual(compare.forms_of(None, ["a"], [1], "LBHNC"), [])
        self.assertEqual(compare.forms_of({"a": SimpleNamespace()}, ["a", "b"], [1, 1], "LBHNC"), [])


@unittest.skipIf(torch is None, "there is no torch")
class Numbers(unittest.TestCase):
    def setUp(self) -> None:
        self.random = torch.Generator().manual_seed(1)

    def block(self, dtype: Any) -> Any:
        """Of each layer keys and values of each head."""
        return [torch.randn(HEADS * 2, TOKENS * SIZE, generator=self.random).to(dtype) for _ in range(LAYERS)]

    def forms(self, dtype: Any, layout: str = "LBHNC") -> Any:
        cache = torch.zeros(BLOCKS, HEADS, TOKENS, 2 * SIZE, dtype=dtype)
        size = cache.element_size() * HEADS * TOKENS * 2 * SIZE
        return compare.forms_of({f"layer {i}": cache for i in range(LAYERS)}, [f"layer {i}" for i in range(LAYERS)], [size] * LAYERS, layout)

    def said(self, dtype: Any, mine: Any, stored: Any, **more: Any) -> str:
        raw = [b"".join(layer.contiguous().view(torch.uint8).numpy().tobytes() for layer in block) for block in (mine, stored)]
        return compare.compared(*raw, self.forms(dtype, **more))

    def test_bits(self) -> None:
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            with self.subTest(dtype):
                block = self.block(dtype)
                self.assertEqual(self.said(dtype, block, [layer.clone() for layer in block]), compare.EQUAL)
                near = [layer * (1 + 2.0 ** -8 * (-1) ** i) for i, layer in enumerate(block)]
                self.assertEqual(self.said(dtype, near, block), compare.LAST_BITS)

    def test_one_part_that_differs(self) -> None:
        """The keys, or the values, of one head of one layer are enough, and one number of them."""
        for layer, part in ((0, 0), (1, 3), (2, 2 * HEADS - 1)):
            block = self.block(torch.float32)
            other = [part.clone() for part in block]
            other[layer][part] = self.block(torch.float32)[0][0]
            self.assertEqual(self.said(torch.float32, other, block), compare.DIFFERENT)
            other = [part.clone() for part in block]
            other[layer][part, 5] += block[layer][part].abs().max() / 4
            self.assertEqual(self.said(torch.float32, other, block), compare.DIFFERENT)

    def test_small_heads_count_as_large_ones_do(self) -> None:
        block = self.block(torch.float32)
        block[0][1] *= 1e-4
        other = [part.clone() for part in block]
        other[0][1] = -other[0][1]
        self.assertEqual(self.said(torch.float32, other, block), compare.DIFFERENT)

    def test_what_is_no_number(self) -> None:
        block = self.block(torch.float32)
        other = [part.clone() for part in block]
        other[1][2, 3] = float("nan")
        self.assertEqual(self.said(torch.float32, other, block), compare.DIFFERENT)

    def test_other_forms_are_never_different(self) -> None:
        block, other = self.block(torch.float32), self.block(torch.float32)
        self.assertEqual(self.said(torch.float32, block, other, layout="BLHNC"), compare.UNEQUAL)
        ints = [layer.to(torch.int8) for layer in self.block(torch.float32)]
        self.assertEqual(self.said(torch.int8, ints, [layer + 1 for layer in ints]), compare.UNEQUAL)
