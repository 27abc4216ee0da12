"""A study for tests."""

import datetime

from fedcal.sites.study_file import Model, Study, StudyQuestion, sites_of

TODAY = datetime.datetime.now(datetime.UTC).date()


def study(sites="alder=300,birch,cedar,dogwood,elm", classes=("survived", "sepsis"), **more):
    model = Model(classes, **more.pop("model", {}))
    question = StudyQuestion(
        **({"text": q} if isinstance(q := more.pop("question", {}), str) else q)
    )
    more = {"since": TODAY, "question": question, **more}
    return Study("sepsis", model, sites_of(sites), "host:9092", **more)
