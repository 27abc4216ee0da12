"""Steps that are Python: what has no command line, or none that is short.

Each takes `entry`, which finds a name of `worker.ENTRIES`, and the words of the step. What it
returns is written beside the step: text, arrays by name, or anything that JSON can hold.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Entry = Callable[[str], Any]


def write(value: object, stem: str) -> None:
    """A file for what a step returns."""
    if isinstance(value, str):
        Path(f"{stem}.txt").write_text(value)
    elif isinstance(value, dict) and any(isinstance(v, np.ndarray) for v in value.values()):
        np.savez(f"{stem}.npz", **value)
    elif value is not None:
        Path(f"{stem}.json").write_text(json.dumps(value))


def block(entry: Entry, name: str) -> str:
    """Text of README and docs that is made from the shipped results."""
    return str(entry("blocks")[name]())


def shipped(entry: Entry, name: str) -> Any:
    """All files of an experiment, from the shipped results."""
    result = entry("shipped")(name)
    result.save(Path("out"))
    return result.to_json()


def one_network(entry: Entry, name: str, network: str) -> Any:
    """A grid on a part of its networks, with one seed."""
    result = entry("reproduce")(name, networks=[network], seeds=1, jobs=1, out="out")
    return result.to_json()


def quick_rows(entry: Entry, name: str) -> Any:
    """A few rows of an experiment."""
    return entry(name)(quick=True)


def audit_rows(entry: Entry, trials: str) -> Any:
    """Attacks with few trials; the noise of the operating system is another in each run."""
    return [row for row in entry("audit")(trials=int(trials)) if row["note"] != "OS noise"]


def luo_rows(entry: Entry, name: str) -> Any:
    """Two trials of every fifth setting, on two small data sets."""
    return entry(name)(data=["in/fog.npz", "in/snow.npz"], jobs=1, trials=2, every=5)


def run_onnx(entry: Entry, path: str) -> dict[str, np.ndarray]:
    """What an exported calibrator gives, and what it says of itself."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    rows = np.load("in/plain.npz")["logits"]
    (first,) = session.get_inputs()
    dtype = np.float64 if "double" in first.type else np.float32
    given = {first.name: rows.astype(dtype)}
    found = {
        o.name: v for o, v in zip(session.get_outputs(), session.run(None, given), strict=True)
    }
    about = session.get_modelmeta()
    said = [first.name, first.type, str(first.shape), about.producer_name, about.description]
    said += [f"{k}={v}" for k, v in sorted(about.custom_metadata_map.items())]
    return found | {"about": np.asarray(said)}


def _arrays() -> dict[str, np.ndarray]:
    return dict(np.load("in/plain.npz"))


def api_simulate(entry: Entry) -> Any:
    """`fedcal.simulate` on arrays."""
    import fedcal

    result = fedcal.simulate(_arrays(), method="fednewton", clients=12, epsilon=2.0, out="out")
    Path("shown.html").write_text(result._repr_html_())
    plain = fedcal.simulate("in/plain.npz", method="fedbbq", clients=12, set={"bins_exponent": 3})
    return {
        "private": result.to_json(),
        "plain": plain.to_json(),
        "rounds": [sorted(record) for record in result.rounds],
        "judged": result.judged_rounds(),
        "probs": plain.test_probs.tolist(),
        "shown": repr(plain)[:2000],
    }


def api_compare(entry: Entry) -> Any:
    """`fedcal.compare` and its tables."""
    import fedcal

    result = fedcal.compare(
        data="in/plain.npz", method=["none", "acct", "fednewton"], epsilon=[1.0, float("inf")],
        clients=12, seeds=2, jobs=1,
    )  # fmt: skip
    Path("shown.html").write_text(result._repr_html_())
    Path("shown.md").write_text(result.to_markdown())
    Path("shown.csv").write_text(result.to_csv())
    return result.to_json()


def api_plan(entry: Entry) -> Any:
    """`fedcal.plan`."""
    import fedcal

    advice = fedcal.plan(
        clients=50, rows_per_client=40, classes=3, epsilon=1.0, methods=["acct", "fednewton"]
    )
    return {
        "estimates": [estimate.to_json() for estimate in advice.estimates],
        "options": advice.options,
        "shown": repr(advice),
    }


def api_federated(entry: Entry) -> Any:
    """`FederatedCalibrator` on scores, and `CalibratedModel` around a classifier."""
    from sklearn.linear_model import LogisticRegression

    from fedcal.experiments.runs.estimator import CalibratedModel, FederatedCalibrator

    rows = _arrays()
    x, y = rows["logits"], rows["labels"]
    found: dict[str, Any] = {}
    for method, more in (("fednewton", {"epsilon": 2.0}), ("fedbin", {}), ("auto", {})):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fitted = FederatedCalibrator(method=method, clients=12, **more).fit(x, y)
        found[method] = {
            "privacy": fitted.privacy_,
            "calibrator": {k: v.tolist() for k, v in fitted.calibrator_.arrays().items()},
            "probs": fitted.predict_proba(rows["test_logits"]).tolist(),
            "shown": repr(fitted),
            "warnings": [str(w.message) for w in told],
        }
    whole = CalibratedModel(LogisticRegression(), FederatedCalibrator(clients=6, partition="iid"))
    return found | {"whole": whole.fit(x, y).predict_proba(x).tolist()}
