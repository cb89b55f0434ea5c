"""`turbidite simulate`: figures that can be worked out by hand, what follows when a stated figure changes, and that what it says
of a trace is what happens when the trace is ingested."""

from xml.etree import ElementTree

import numpy
import pytest

from support import raw
from support.command import FAILED, USAGE, answer, turbidite

BATCH_BYTES = 32 << 10


def simulate(*arguments) -> dict:
    return answer("simulate", "--no-advice", *arguments)


def forecast(*arguments) -> dict:
    return simulate(*arguments)["forecast"]


def test_what_can_be_worked_out_by_hand():
    plan = ("--nodes", 3, "--ranks-per-node", 4, "--records", 5000, "--record-bytes", 40)
    found = forecast(*plan, "--part-bytes", 0)
    assert (found["ranks"], found["nodes"], found["receivers"], found["files"]) == (12, 3, 12, 12)
    assert found["stored_bytes"] == 12 * 5000 * 40
    assert found["simulated_per_rank"] == found["records_per_rank"] == 5000
    # Four ranks of the own node, and of the two other nodes one that this rank passes records on to.
    assert found["buffer_bytes_three_hops"] == 5 * BATCH_BYTES
    assert found["buffer_bytes_one_hop"] == 12 * BATCH_BYTES
    # The leaders of the nodes below rank 0, and the ranks of each node below its leader.
    assert found["tree_depth"] == 2
    assert found["spills"] == 0
    assert found["load_imbalance"] < 0.05 and 1 <= found["largest_load"] < 1.2
    assert forecast(*plan, "--part-bytes", 0) == found
    # The records are 2.4 MB in all, and a part of 28 MiB is as large as it gets.
    assert [forecast(*plan)[figure] for figure in ("receivers", "files", "tables", "strays")] == [1, 1, 0, 0]
    assert forecast(*plan, "--part-bytes", "600kB")["files"] == 4


def test_a_stated_figure_has_its_effect():
    plan = ("--nodes", 2, "--ranks-per-node", 8, "--records", 20_000, "--part-bytes", 0)
    usual = forecast(*plan)
    slow = forecast(*plan, "--storage-gb-per-s", 0.01)
    # 16 * 20,000 records of 64 bytes at 10 MB/s are 2.048 s, for plain writes as for an ingest.
    assert 2.04 < slow["plain_s"] < 2.1 and 2.04 < slow["ingest_s"] < 2.3
    assert usual["ingest_s"] < 0.5
    far = forecast(*plan, "--latency-us", 5000)
    # Word, answers and table each pass once between the nodes.
    assert far["negotiation_s_most"] > 0.015 > usual["negotiation_s_most"]
    # Without representatives records cross the network once, and none is passed on by another rank.
    direct = forecast(*plan, "--direct")
    assert direct["processor_s"] < usual["processor_s"] and direct["stored_bytes"] == usual["stored_bytes"]
    few = forecast(*plan[:-2], "--receivers", 4)
    assert (few["receivers"], few["files"]) == (4, 4)
    weak = forecast(*plan, "--speed", 0.5)
    assert weak["processor_s"] == pytest.approx(2 * usual["processor_s"], rel=0.1)
    made = forecast(*plan, "--rate", 10_000)
    assert made["plain_s"] == pytest.approx(2.0, rel=0.05) and made["ingest_s"] > 2.0


def test_what_a_commit_takes_is_stated():
    plan = ("--ranks-per-node", 4, "--records", 1000)
    quick, slow = forecast(*plan, "--commit-ms", 0), forecast(*plan, "--commit-ms", 500)
    assert slow["ingest_s"] == pytest.approx(quick["ingest_s"] + 0.5, abs=0.01)


# The options of a measured machine.
FIGURES = ("speed", "node_storage_gb_per_s", "commit_ms", "time_factor")


def test_the_time_factor_changes_times_alone():
    plan = ("--ranks-per-node", 8, "--records", 20_000, "--commit-ms", 0)
    usual, twice = forecast(*plan), forecast(*plan, "--time-factor", 2)
    assert twice.pop("ingest_s") == pytest.approx(2 * usual.pop("ingest_s"))
    assert twice == usual
    # The program makes its records in the same time, and storage stores them in the same time.
    made = forecast(*plan, "--rate", 10_000, "--time-factor", 2)
    assert 2.0 < made["ingest_s"] < 2.5
    stored = forecast(*plan, "--node-storage-gb-per-s", 0.001, "--time-factor", 0.01)
    assert stored["ingest_s"] == pytest.approx(8 * 20_000 * 64 / 1e6, rel=0.01)


def test_a_measured_machine_is_the_same_when_its_figures_are_stated(tmp_path):
    plan = ("--ranks-per-node", 8, "--cores", 4, "--records", 20_000, "--record-bytes", 36)
    found = simulate(*plan, "--measure", tmp_path)
    measured = found.pop("measured")
    assert all(0 < value < float("inf") for value in measured.values()), measured
    assert measured["ranks"] == 2 * measured["cores"]
    assert measured["epoch_bytes"] == measured["ranks"] * 20_000 * 36, "an epoch of a node"
    assert list(tmp_path.iterdir()) == [], "what was written is removed"
    figures = {f"--{figure.replace('_', '-')}": measured[figure] for figure in FIGURES}
    stated = simulate(*plan, *(part for pair in figures.items() for part in pair))
    assert stated.pop("measured") is None
    assert stated == found
    assert stated["forecast"]["processor_s"] == pytest.approx(forecast(*plan)["processor_s"] / measured["speed"], rel=0.05)
    # At this speed, the model needs the processor time that the job has taken.
    job = ("--ranks-per-node", measured["ranks"], "--cores", measured["cores"], "--records", 20_000, "--record-bytes", 36)
    assert simulate(*job, "--speed", measured["speed"])["steady"]["processor_s"] == pytest.approx(measured["processor_s"], rel=0.05)


def test_a_machine_cannot_be_measured_where_nothing_can_be_written(tmp_path):
    assert "turbidite-measure" in turbidite("simulate", "--measure", tmp_path / "none", expect=FAILED).stderr
    assert "cannot be used with" in turbidite("simulate", "--measure", tmp_path, "--speed", 1, expect=USAGE).stderr
    assert list(tmp_path.iterdir()) == []


def test_of_a_long_run_the_first_part_is_simulated():
    found = forecast("--ranks-per-node", 8, "--records", 1_000_000, "--most-records", 80_000)
    assert (found["simulated_per_rank"], found["stored_bytes"]) == (10_000, 8 * 1_000_000 * 64)
    words = turbidite("simulate", "--no-advice", "--ranks-per-node", 8, "--records", 1_000_000, "--most-records", 80_000).stdout
    assert "simulated: the first 10,000 records of each rank" in words


def test_advice_and_page(tmp_path):
    page = tmp_path / "plan.html"
    found = answer("simulate", "--ranks-per-node", 16, "--records", 3000, "-o", page)
    assert [choice["option"] for choice in found["advice"]] == ["pivots", "renegotiate", "part bytes"]
    # 16 ranks store 3 MB in all: one part, since other engines open each.
    assert found["advice"][2]["value"] == "default" and "1 file of 3.07 MB" in found["advice"][2]["reason"]
    assert all(choice["reason"] for choice in found["advice"])
    document = ElementTree.fromstring(page.read_text())
    plots = [svg.get("data-plot") for svg in document.iter("{http://www.w3.org/2000/svg}svg")]
    assert plots == ["loads", "rounds"]


def test_ids_by_hash_need_no_tables(tmp_path):
    plan = ("--nodes", 3, "--ranks-per-node", 4, "--records", 5000, "--record-bytes", 40, "--part-bytes", 0)
    found = forecast(*plan, "--key", "hash:id")
    assert found["clustering"] == "hash"
    for figure in ("tables", "strays", "negotiation_messages_per_table", "negotiation_s_most"):
        assert found[figure] == 0, figure
    # Each of 12 receivers has 5,000 records, with a standard deviation of 68: 1.4 %.
    assert 0.005 < found["load_imbalance"] < 0.03 and found["largest_load"] < 1.06
    # Ten bits a record.
    assert found["stored_bytes"] == 60_000 * 40 and abs(found["filter_bytes"] - 75_000) <= 12 * 4
    by_range = forecast(*plan)
    assert by_range["clustering"] == "range" and by_range["filter_bytes"] == 0 < by_range["tables"]
    slow = ("--storage-gb-per-s", 0.001)
    # 2.4 MB of records and 75 kB of filters at 1 MB/s.
    assert 2.47 < forecast(*plan, *slow, "--key", "hash:id")["ingest_s"] < 2.6
    page = tmp_path / "plan.html"
    words = turbidite("simulate", *plan, "--key", "hash:id", "-o", page).stdout
    assert "none: receivers follow from the hash" in words and "renegotiation" not in words and "filters" in words
    assert "part bytes" in words and "pivots" not in words
    plots = [svg.get("data-plot") for svg in ElementTree.fromstring(page.read_text()).iter("{http://www.w3.org/2000/svg}svg")]
    assert plots == ["loads"]


def test_a_trace_of_ids_gives_the_loads_that_ingesting_it_has(tmp_path):
    """A quarter of all records have the same id, whose receiver is known from the id alone: the loads are equal, not similar."""
    random = numpy.random.default_rng(3)
    dtype = numpy.dtype([("id", "<u4")])
    ids = random.integers(0, 2**32, (4, 4000), dtype="<u4")
    ids[:, ::4] = 17
    layout = raw.write_source(tmp_path, {1: [rank.view(dtype) for rank in ids]})
    done = answer(*raw.ingest_arguments(tmp_path, tmp_path / "ds", "hash:id", "--threads", 1, "--part-bytes", 0))["epochs"][0]
    size = ("--ranks-per-node", 4, "--records", 4000, "--record-bytes", 4, "--part-bytes", 0)
    found = forecast(tmp_path, "--layout", layout, "--key", "hash:id", *size)
    assert (found["load_imbalance"], found["files"]) == (pytest.approx(done["load_imbalance"]), 4)
    assert found["load_imbalance"] > 0.4
    assert (done["renegotiations"], found["tables"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--nodes", 0), "1 to 1,048,576 ranks"),
        (("--receivers", 17), "must be 1 to 16"),
        (("--record-bytes", 3), "at least 4, the size of the key"),
        (("--storage-gb-per-s", 0), "must be above 0"),
        (("--latency-us", "nan"), "must be 0 or more"),
        (("--commit-ms", "nan"), "must be 0 or more"),
        (("--key", "energy"), "SOURCE"),
        (("--key", "space:x,y"), "SOURCE"),
        (("--key", "hash:id", "--drift", 2), "ids do not grow"),
        (("--key", "hash:id", "--distribution", "uniform"), "cannot be used with"),
        (("--key", "hash:id", "--record-bytes", 7), "at least 8, the size of the key"),
        (("--index", "id", "--index", "hash:id"), "'id' is named twice"),
        (("--index", "id,with=id"), "has 'id' twice"),
    ],
)
def test_what_has_no_meaning_is_refused(arguments, complaint):
    assert complaint in turbidite("simulate", *arguments, expect=USAGE).stderr


def close(found: float, expected: float, factor: float) -> bool:
    return 1 / factor < found / expected < factor


def test_a_trace_gives_the_balance_that_ingesting_it_has(tmp_path):
    """Ranks whose keys differ, appended as `ingest` does: the forecast is of the same balance, tables and messages.

    One thread appends for all ranks in turns, and no memtable fills before the end: every ingest takes the same course. Where
    several threads append, tables come as the threads are scheduled, and no forecast can tell how many."""
    random = numpy.random.default_rng(7)
    dtype = numpy.dtype([("energy", "<f4")])
    ranks = [(random.lognormal(0.0, 1.0, 20_000) * (1 + rank / 8)).astype("<f4").view(dtype) for rank in range(16)]
    layout = raw.write_source(tmp_path, {1: ranks})
    once, done = (
        answer(*raw.ingest_arguments(tmp_path, tmp_path / name, "energy", "--threads", 1, "--part-bytes", 0))["epochs"][0]
        for name in ("one", "two")
    )
    course = ("rows_per_receiver", "renegotiations", "messages", "strays", "spills")
    assert [once[figure] for figure in course] == [done[figure] for figure in course]
    # On a processor each, ranks would get out of step: those that end last own the last keys, which no table can even out.
    size = ("--ranks-per-node", 16, "--cores", 1, "--records", 20_000, "--record-bytes", 4, "--part-bytes", 0)
    found = forecast(tmp_path, "--layout", layout, "--key", "energy", *size)
    assert done["spills"] == 0 and found["spills"] == 0
    assert abs(found["load_imbalance"] - done["load_imbalance"]) < 0.02, (found["load_imbalance"], done["load_imbalance"])
    assert abs(found["strays"] - done["strays"] / done["rows"]) < 0.005, (found["strays"], done["strays"])
    assert abs(found["tables"] - done["renegotiations"]) <= 1, (found["tables"], done["renegotiations"])
    assert close(found["messages"], done["messages"], 1.2), (found["messages"], done["messages"])
    assert found["files"] == 16


def test_later_epochs_of_a_trace_are_forecast_as_they_are_ingested(tmp_path):
    """The second epoch begins with the distribution of the first, in the run and in the forecast; with `--prior none` in neither."""
    random = numpy.random.default_rng(8)
    dtype = numpy.dtype([("energy", "<f4")])
    epochs = {epoch: [random.lognormal(0.0, 1.0, 20_000).astype("<f4").view(dtype) for _ in range(16)] for epoch in (1, 2)}
    layout = raw.write_source(tmp_path, epochs)
    common = ("--part-bytes", 0)
    size = ("--ranks-per-node", 16, "--cores", 1, "--records", 20_000, "--record-bytes", 4)
    for prior in ("last", "none"):
        ingest = raw.ingest_arguments(tmp_path, tmp_path / prior, "energy", "--threads", 1, *common, "--prior", prior)
        first, later = answer(*ingest)["epochs"]
        found = simulate(tmp_path, "--layout", layout, "--key", "energy", *size, *common, "--prior", prior)
        if prior == "none":
            assert found["steady"] is None
            assert later["renegotiations"] > 2, "the epoch knows an earlier one"
            continue
        steady = found["steady"]
        assert later["renegotiations"] < first["renegotiations"] and steady["tables"] < found["forecast"]["tables"]
        assert abs(steady["tables"] - later["renegotiations"]) <= 1, (steady["tables"], later["renegotiations"])
        assert close(steady["messages"], later["messages"], 1.2), (steady["messages"], later["messages"])
        assert abs(steady["load_imbalance"] - later["load_imbalance"]) < 0.02, (steady["load_imbalance"], later["load_imbalance"])
        assert (steady["spills"], later["spills"]) == (0, 0)


def places_of(random, rank: int, count: int) -> numpy.ndarray:
    """A slab of a domain that is dense at its lower end, in the order of its cells."""
    rows = numpy.empty(count, numpy.dtype([("x", "<f4"), ("y", "<f8"), ("z", "<f4")]))
    rows["x"] = rank + random.random(count)
    rows["y"] = 100 * random.random(count) ** 3
    rows["z"] = random.normal(size=count)
    return rows[numpy.argsort(rows["y"] // 10, kind="stable")]


def test_a_trace_of_places_gives_the_balance_that_ingesting_it_has(tmp_path):
    """Records that are clustered by space: the forecast of the first epoch and of the second is that of an ingest."""
    random = numpy.random.default_rng(9)
    epochs = {epoch: [places_of(random, rank, 20_000) for rank in range(16)] for epoch in (1, 2)}
    layout = raw.write_source(tmp_path, epochs)
    size = ("--ranks-per-node", 16, "--cores", 1, "--records", 20_000, "--record-bytes", 16, "--part-bytes", 0)
    for key in ("space:x,y,z", "space:y,x"):
        target = tmp_path / key.replace(":", "-")
        ingested = answer(*raw.ingest_arguments(tmp_path, target, key, "--threads", 1, "--part-bytes", 0))["epochs"]
        found = simulate(tmp_path, "--layout", layout, "--key", key, *size)
        for done, forecast_of in zip(ingested, (found["forecast"], found["steady"]), strict=True):
            assert forecast_of["clustering"] == "space" and forecast_of["files"] == 16
            assert done["spills"] == 0 and forecast_of["spills"] == 0
            assert abs(forecast_of["load_imbalance"] - done["load_imbalance"]) < 0.02, (forecast_of, done)
            assert abs(forecast_of["strays"] - done["strays"] / done["rows"]) < 0.01, (forecast_of, done)
            assert abs(forecast_of["tables"] - done["renegotiations"]) <= 1, (forecast_of, done)
            assert close(forecast_of["messages"], done["messages"], 1.2), (forecast_of, done)


def test_keys_by_space_that_cannot_be_forecast_are_refused(tmp_path):
    layout = raw.write_source(tmp_path, {1: [places_of(numpy.random.default_rng(1), 0, 100)]})
    for key, complaint in [
        ("space:x", "a key by space 2 or 3"),
        ("space:x,x", "'x' is named twice"),
        ("space:x,w", "'w' is not a column; the columns are x, y, z"),
        ("hash:x,y", "one column of a trace"),
    ]:
        words = turbidite("simulate", tmp_path, "--layout", layout, "--key", key, expect=USAGE).stderr
        assert complaint in words, words


def test_the_first_epoch_and_later_ones_stand_beside_each_other():
    plan = ("simulate", "--no-advice", "--ranks-per-node", 8, "--records", 20_000, "--part-bytes", 0)
    lines = turbidite(*plan).stdout.splitlines()
    assert lines[1].split("  ")[-2:] == ["first epoch", "later epochs"]
    found = simulate(*plan[2:])
    tables = next(line for line in lines if line.startswith("partition tables")).split()[-2:]
    assert [int(cell) for cell in tables] == [found["forecast"]["tables"], found["steady"]["tables"]]
    assert found["steady"]["tables"] <= 2 < found["forecast"]["tables"]
    alone = turbidite(*plan, "--prior", "none").stdout
    assert "later epochs" not in alone and "partition tables" in alone
    # Receivers that follow from the hash need no earlier epoch.
    assert simulate(*plan[2:], "--key", "hash:id")["steady"] is None


def test_indexes_are_those_that_ingesting_a_trace_makes(tmp_path):
    """Entries by a second shuffle, and bitmaps: the files are those of an ingest, and the bytes within a fifth."""
    random = numpy.random.default_rng(11)
    dtype = numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("ux", "<f4")])
    ids = random.permutation(16 * 20_000).astype("<u4").reshape(16, 20_000)
    ranks = [numpy.empty(20_000, dtype) for _ in ids]
    for rank, own in zip(ranks, ids):
        rank["energy"], rank["id"], rank["ux"] = random.lognormal(0.0, 1.0, 20_000), own, random.normal(size=20_000)
    layout = raw.write_source(tmp_path, {1: ranks})
    definitions = ["ux", "hash:id,with=energy", "bitmap:ux,id"]
    indexes = [word for definition in definitions for word in ("--index", definition)]
    arguments = raw.ingest_arguments(tmp_path, tmp_path / "ds", "energy", "--threads", 1, "--part-bytes", 0)
    answer(*arguments, *indexes)
    size = ("--ranks-per-node", 16, "--cores", 1, "--records", 20_000, "--record-bytes", 12, "--part-bytes", 0)
    trace = (tmp_path, "--layout", layout, "--key", "energy")
    found = {index["definition"]: index for index in forecast(*trace, *size, *indexes)["indexes"]}
    made = {index["definition"]: index for index in answer("index", "list", tmp_path / "ds")["indexes"]}
    assert set(found) == set(made) == set(definitions)
    for definition in definitions:
        assert found[definition]["entries"] == made[definition]["entries"] == 320_000
        # Row groups of 20,000 rows have fewer bins than those of a long run, and take fewer bits a value.
        factor = 1.25 if definition.startswith("bitmap:") else 1.2
        assert close(found[definition]["bytes"], made[definition]["bytes"], factor), (found[definition], made[definition])
    for definition, name in (("ux", "ux"), ("hash:id,with=energy", "id")):
        done = answer("stats", tmp_path / "ds" / "_turbidite" / "index" / name)[0]
        assert found[definition]["files"] == done["parts"], (found[definition], done)
    # Receivers of entries by hash follow from the ids alone. Tables and messages depend on when background threads write.
    assert abs(found["hash:id,with=energy"]["load_imbalance"] - done["load_imbalance"]) < 0.005, done


def test_each_index_has_its_effect():
    plan = ("--nodes", 2, "--ranks-per-node", 4, "--records", 50_000, "--part-bytes", 0)
    alone, by_id = forecast(*plan), forecast(*plan, "--index", "id")
    (index,) = by_id["indexes"]
    assert alone["indexes"] == []
    # An id of 8 bytes, part and row, and 3 % for the headers and indexes of pages.
    assert index["entries"] == 400_000 and 16 * 400_000 < index["bytes"] < 16.6 * 400_000
    assert by_id["messages"] == alone["messages"] + index["messages"] and index["messages"] > 0
    assert by_id["processor_s"] == pytest.approx(alone["processor_s"] + index["processor_s"])
    assert by_id["ingest_s"] > alone["ingest_s"] and by_id["stored_bytes"] == alone["stored_bytes"]
    # 2 MiB of memtables, 0.5 MiB of waiting entries, batches and a table.
    assert 2.5 * 2**20 < index["memory_bytes"] < 4.75 * 2**20
    (carrying,) = forecast(*plan, "--index", "hash:id,with=x,with=y")["indexes"]
    # 24 bytes, filters of 10 bits, and pages of 128 rows.
    assert 25 * 400_000 < carrying["bytes"] < 29 * 400_000 and carrying["tables"] == 0 < index["tables"]
    (bins,) = forecast(*plan, "--index", "bitmap:x,y,z")["indexes"]
    assert bins["messages"] == 0 and 3 * 400_000 <= bins["bytes"] < 3.3 * 400_000
    both = forecast(*plan, "--index", "id", "--index", "bitmap:x,y,z")
    assert [one["definition"] for one in both["indexes"]] == ["id", "bitmap:x,y,z"]
    slow = ("--storage-gb-per-s", 0.01)
    # Records and index are written to the same storage.
    assert forecast(*plan, *slow, "--index", "id")["ingest_s"] > (400_000 * 64 + index["bytes"]) / 1e7
    half = forecast(*plan, "--index", "id", "--speed", 0.5)["indexes"][0]["processor_s"]
    assert half == pytest.approx(2 * index["processor_s"], rel=0.1)
    words = turbidite("simulate", "--no-advice", *plan, "--index", "id", "--index", "bitmap:x,y,z").stdout
    assert "index id: " in words and "index bitmap:x,y,z: " in words
