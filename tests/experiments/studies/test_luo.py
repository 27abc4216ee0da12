"""Tables of Luo et al.: what is summed up."""

from statistics import median

from experiments.studies.luo.results import figures, table1


def test_a_table_of_files_sums_up_its_cells(data_file):
    files = [data_file("fog.npz", n=3100), data_file("snow.npz", n=3110)]
    rows = table1.rows(data=files, jobs=1, trials=2, every=5)
    cells = [r for r in rows if r["what"] == "cell"]
    assert {r["data"] for r in cells} == {"fog.npz", "snow.npz"}
    methods = {(r["method"], r["noise"]): r for r in rows if r["what"] == "method"}
    assert methods["acc-t", "local"]["median"] == median(r["acc-t/local"] for r in cells)
    assert len(list(table1.claims(rows))) == 7
    points = figures.rows(data=files, jobs=2, trials=2, every=5)
    shared = {(r["data"], r["sweep"], r["sources"], r["samples"], r["epsilon"]): r for r in points}
    for r in cells:  # columns do not change each other, nor do processes
        same = shared[r["data"], r["sweep"], r["sources"], r["samples"], r["epsilon"]]
        assert same["acc-t/local"] == r["acc-t/local"]
    assert len(list(figures.claims(points))) == 9
