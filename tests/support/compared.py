"""A cell of a comparison's table, as its report reads it."""

from typing import Any


def cell(label: str, epsilon: float | str, ece: float, **more: Any) -> dict[str, Any]:
    values = {"ece": ece, "classwise_ece": ece / 3, "nll": 0.2 + ece, "accuracy": 0.9}
    return {
        **{"data": "resnet110-cifar10", "method": label, "label": label, "settings": {}},
        **{"clients": 100, "partition": "iid", "sampling_rate": 1.0, "unit": "user"},
        **{"delta": None if float(epsilon) == float("inf") else 1e-5, "trust": "central"},
        **{"epsilon": epsilon, "rounds": 4, "seeds": [0, 1], "baseline": False, "failures": []},
        **{"bytes_up": 64, "bytes_down": 380, "seconds": {"mean": 0.25, "std": 0.0}},
        **{"before": {}, "noise_std": 1.0, "mechanism": "gaussian"},
        "after": {m: {"mean": v, "std": v / 10} for m, v in values.items()},
        **more,
    }
