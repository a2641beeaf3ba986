import io

import pytest
import torch

from fednoise_core.ops.weights import (
    Entry,
    Layout,
    Weights,
    clone_tree,
    count_bytes,
    from_plain,
    to_plain,
    weighted_mean,
)

ENTRIES = [
    Entry("conv.weight", (2, 3, 2, 2)),
    Entry("norm.weight", (2,), "norm"),
    Entry("norm.mean", (2,), "stat"),
    Entry("head.weight", (4, 2)),
    Entry("scalar", ()),
]


def numbered() -> Weights:
    layout = Layout(ENTRIES)
    return Weights(layout, torch.arange(layout.size, dtype=torch.float32))


def test_layout_puts_trained_numbers_first():
    layout = Layout(ENTRIES)
    assert [e.name for e in layout.entries] == ["conv.weight", "head.weight", "scalar", "norm.weight", "norm.mean"]
    assert layout.offsets == {"conv.weight": 0, "head.weight": 24, "scalar": 32, "norm.weight": 33, "norm.mean": 35}
    assert (layout.trained, layout.size) == (35, 37)
    assert numbered().trained.tolist() == list(range(35))


def test_layout_refuses_repeated_names_and_unknown_kinds():
    with pytest.raises(ValueError, match="distinct"):
        Layout([Entry("a", (1,)), Entry("a", (2,))])
    with pytest.raises(ValueError, match="kinds"):
        Layout([Entry("a", (1,), "buffer")])


def test_views_share_the_buffer_and_kernels_lie_channels_last():
    w = numbered()
    kernel = w["conv.weight"]
    assert kernel.shape == (2, 3, 2, 2)
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    # (out, high, wide, in) in memory: entry [1, 2, 0, 1] is at 1*12 + 0*6 + 1*3 + 2
    assert kernel[1, 2, 0, 1].item() == 17
    assert w["head.weight"].tolist() == [[24, 25], [26, 27], [28, 29], [30, 31]]
    assert w["scalar"].shape == ()
    w.flat[32] = -1.0
    assert w["scalar"].item() == -1.0


def test_arithmetic_is_elementwise_and_refuses_other_layouts():
    w = numbered()
    assert torch.equal(((w + w) * 2 - w / 4).flat, w.flat * 3.75)
    assert torch.equal((2 * w + 1.0).flat, w.flat * 2 + 1)
    foreign = Weights(Layout([Entry("a", (37,))]), torch.zeros(37))  # as long, and yet another net
    with pytest.raises(ValueError, match="different nets"):
        w + foreign
    assert (w + Weights(Layout(ENTRIES), w.flat)).layout == w.layout  # an equal layout is enough


def test_clone_is_independent_and_named_is_contiguous():
    w = numbered()
    tree = clone_tree({"w": w, "list": [torch.ones(2)], "n": 3})
    w.flat.zero_()
    assert tree["w"].flat[5] == 5
    assert tree["n"] == 3
    named = tree["w"].named()
    assert all(t.is_contiguous() for t in named.values())
    assert named["conv.weight"][1, 2, 0, 1] == 17


def test_mean_by_hand():
    a, b = {"x": torch.tensor([1.0, 2.0]), "n": 4}, {"x": torch.tensor([5.0, 4.0]), "n": 8}
    assert weighted_mean([a, b])["x"].tolist() == [3.0, 3.0]
    assert weighted_mean([a, b], [3, 1])["x"].tolist() == [2.0, 2.5]
    assert weighted_mean([a, b], [3, 1])["n"] == 5.0
    assert weighted_mean([a, b], [300, 100])["x"].tolist() == [2.0, 2.5]  # weights are normalised
    assert weighted_mean([[a["x"]], [b["x"]]])[0].tolist() == [3.0, 3.0]


def test_mean_of_counters_is_the_largest():
    counters = [torch.tensor([3, 9]), torch.tensor([4, 1]), torch.tensor([2, 2])]
    assert weighted_mean(counters, [0.5, 0.1, 0.4]).tolist() == [4, 9]
    assert weighted_mean(counters).dtype == torch.int64
    assert weighted_mean([torch.tensor(True), torch.tensor(False)]).item() is True


def test_mean_sums_in_float32_and_keeps_the_type():
    ones = [torch.tensor([1.0], dtype=torch.float16)] * 4096  # in half precision a sum of ones stops at 2048
    assert weighted_mean(ones).item() == 1.0
    assert weighted_mean(ones).dtype == torch.float16
    assert weighted_mean([torch.tensor([1.0], dtype=torch.float64)]).dtype == torch.float64


@pytest.mark.parametrize("shares", [[0.0, 0.0], [1.0, -1.0], [1.0]])
def test_mean_refuses_weights_without_a_sum(shares):
    with pytest.raises(ValueError, match="positive sum"):
        weighted_mean([torch.ones(1), torch.ones(1)], shares)
    with pytest.raises(ValueError, match="no trees"):
        weighted_mean([])
    with pytest.raises(FloatingPointError, match="not finite"):
        weighted_mean([torch.ones(1), torch.ones(1)], [float("nan"), 1.0])


def test_bytes_by_hand():
    tree = {
        "w": numbered(),
        "half": torch.zeros(3, dtype=torch.float16),
        "text": "né",
        "n": 1,
        "x": 0.5,
        "flag": True,
        "none": None,
        "list": [torch.zeros(2, dtype=torch.int64), {"a": torch.zeros((), dtype=torch.float64)}],
    }
    assert count_bytes(tree) == 37 * 4 + 6 + 3 + 8 + 8 + 8 + 0 + 16 + 8


def test_plain_trees_pass_torch_safe_loading_and_come_back():
    w = numbered()
    tree = {
        "one": w,
        "two": w * 2.0,
        "number": 1.5,
        "list": [1, "a", None, torch.tensor([1, 2])],
        "deep": {"flag": False},
    }
    file = io.BytesIO()
    torch.save(to_plain(tree), file)
    file.seek(0)
    back = from_plain(torch.load(file, weights_only=True))
    assert back["one"].layout == w.layout
    assert back["one"].layout is back["two"].layout
    assert torch.equal(back["two"].flat, w.flat * 2)
    assert torch.equal(back["one"]["conv.weight"], w["conv.weight"])
    assert back["list"][:3] == [1, "a", None]
    assert back["list"][3].tolist() == [1, 2]
    assert back["deep"] == {"flag": False}
