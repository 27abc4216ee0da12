"""What earlier versions had, and what to use instead: a row for each name, in its user's words."""

from typing import NoReturn

from fedcal.core.errors import InputError

REMOVED = {
    "reading .arrow": "write the table as .parquet",
    "reading .feather": "write the table as .parquet",
    "reading a folder of datasets.save_to_disk": "write it with Dataset.to_parquet",
    "reading a datasets.Dataset": "give its to_pandas(); a column split tells the test part",
    "fedcal.datasets.from_huggingface": "give Dataset.to_pandas() to from_frame",
    "FEDCAL_HTTP_FLEET": "sites talk gRPC to a fleet port: pip install 'fedcal[sites]'",
    "fedcal.corruptions": "import fedcal.experiments.research.corruptions, in a clone",
    "fedcal.privacy.audit": "import fedcal.experiments.research.audit, in a clone",
    "fedcal reproduce liars": "its figures are in docs/guide/secure-aggregation.md",
    "fedcal reproduce binning-pays": "its figures are in docs/results/choosing.md",
    "fedcal reproduce training-audit": "its figures are in docs/results/audit.md",
    "fedcal reproduce prediction-sets-peers": "its figures are in docs/results/angelopoulos.md",
    "fedcal reproduce fedtemp-bound": "its figures are in docs/results/maddock.md",
    "fedcal.privacy.account": "import fedcal.experiments.research.stages, in a clone",
    "fedcal pipeline": (
        "run the commands train, simulate and evaluate with one --ledger "
        "(examples/train_calibrate_evaluate.py)"
    ),
    "fedcal.plan_sets": "a run of the method conformal warns, and says what it needs",
    "plan --method conformal": "use fedcal simulate, which warns and says what it needs",
    "plan --method fedprior": "use fedcal site recalibrate, which says if the release pays",
    "plan --method auto": "use fedcal plan, whose first line is recommended",
    "method fednewton-class": "use fednewton",
    "method fednewton-opvector": "use fednewton, or without privacy fedopvector",
    "method fednewton-top": "use fednewton",
    "method auto": "use what fedcal plan recommends",
    "method evaluate-auc": "use evaluate, which has the AUC",
    "method evaluate-ks": "use evaluate, which has the calibration error",
    "method evaluate-accuracy": "use fedcal evaluate --only accuracy",
    "only auc": "run evaluate without --only: it has the AUC",
    "only ks": "run evaluate without --only: it has the calibration error",
    "search bisection": "use posterior",
    "search exponential": "use posterior (nllt and ecet still have it)",
    "fedcal.FedNewtonClass": "use FedNewton",
    "fedcal.FedNewtonOPVector": "use FedNewton, or without privacy FedOPVector",
    "fedcal.FedNewtonTop": "use FedNewton",
    "score=margin": "use score=lac",
    "quantile=unary": "omit quantile (gaps serves whole clients under every trust)",
    "--set guarantee": "omit it; sets cover in the mean over releases",
    "--set confidence": "omit it, as guarantee=pac",
    "--set costs": "use by=class, which covers each label by itself",
    "--set among": "use by=class, which covers each label by itself",
    "--set weigh": "omit it; sets are for rows like the clients' rows",
    "--set report": "use groups=..., which covers each group by itself",
    "fedcal features": "make features with your own code: .npz with features and labels",
    "--model linear": "use softmax",
    **dict.fromkeys(
        ("--model cnn", "--model resnet18", "--model lstm"),
        "use a torch.nn.Module of your own, MODULE:CLASS",
    ),
    **dict.fromkeys(
        ("mcc", "f1", "balanced_accuracy"), "use accuracy, precision, recall and specificity"
    ),
    **dict.fromkeys(
        ("mce", "ks", "smooth_ece", "ece_debiased", "ece_equal_mass", "brier_reliability"),
        "use ece and classwise_ece",
    ),
    **dict.fromkeys(("brier_resolution", "brier_uncertainty"), "use brier"),
    **dict.fromkeys(("macro_roc_auc", "weighted_roc_auc"), "use the curves of score=classes"),
    "confusion": "use precision and recall of a class: scores of that class against all others",
    "fedcal evaluate --precision": "use --at 'precision>=SHARE'",
    "fedcal evaluate --recall": "use --at 'recall>=SHARE'",
    "fedcal evaluate --cost": "use --at 'recall>=SHARE', or --threshold by the decision curve",
    "fedcal evaluate --confident": "use --at, whose intervals hold for all thresholds at once",
    "spline": "use platt or beta",
    "estimand=clients": "omit it; --by site tells what to expect at the next site",
    "fedcal.FedAUC": "use FedEvaluate",
    "fedcal.FedKS": "use FedEvaluate",
}
"""Name -> what to use instead."""


def check_kept(name: str) -> None:
    """Raise InputError for a name that was removed; it says what to use instead."""
    if name in REMOVED:
        raise InputError(f"{name} was removed in 0.3: {REMOVED[name]}")


def refuse(module: str, name: str) -> NoReturn:
    """Raise for a name that a module lacks: InputError if it was removed, else AttributeError."""
    check_kept(f"{module}.{name}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
