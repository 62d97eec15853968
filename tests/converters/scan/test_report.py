"""How findings are shown: text for people, SARIF for machines."""

from __future__ import annotations

from pathlib import Path

from scan_cases import graph

from converters.facts import facts
from converters.scan import scan
from converters.scan.report import sarif_document, text_of


def test_findings_that_say_the_same_are_shown_once_with_their_nodes(scanned):
    body = " ".join(f"y{index} = Sum(x)" for index in range(5)) + " y = Relu(x)"
    text = text_of(scanned(graph(body)), Path("m.onnx"), "2.6")
    assert text.count("SUM.SINGLE_INPUT") == 1 and "y0, y1, y2 and 2 more" in text
    assert "5 findings, 5 of them errors or silent deviations (Sentis 2.6)" in text


def test_a_finding_that_is_not_verified_for_the_version_says_so(scanned):
    model = graph("y, i = TopK<largest=0>(x, k)", init="int64[1] k = {3}")
    assert "not verified for 2.6" in text_of(scanned(model), Path("m.onnx"), "2.6")
    assert "not verified" not in text_of(scanned(model, "2.4"), Path("m.onnx"), "2.4")


def test_the_pass_that_mends_comes_first(scanned):
    model = graph("y = Slice(x, s, e)", init="int64[1] s = {0}, int64[1] e = {9223372036854775807}")
    assert "mend: mlx-sentis fix --only clamp_int64; values inside int32" in text_of(scanned(model), Path("m"), "2.6")


def test_a_clean_model_is_one_line(scanned):
    assert text_of(scanned(graph("y = Relu(x)")), Path("m.onnx"), "2.6") == "m.onnx: clean (Sentis 2.6)"


def test_the_sarif_log_names_rule_level_file_and_node(tmp_path):
    (tmp_path / "a b.onnx").write_bytes(
        graph('y = Sum(x) z = Gelu<approximate="tanh">(x)', opset=20).SerializeToString()
    )
    document = sarif_document(scan(tmp_path), tmp_path, facts("2.6"))
    (run,) = document["runs"]
    assert document["version"] == "2.1.0" and run["properties"]["sentis"] == "2.6"
    levels = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert levels == [("SUM.SINGLE_INPUT", "error"), ("GELU.TANH", "warning")]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "a%20b.onnx"
        assert place["physicalLocation"]["region"]["startLine"] == 1  # code scanning pages want a line
    assert run["results"][0]["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "y"


def test_sarif_results_of_one_rule_are_told_apart_and_known_again(tmp_path):
    (tmp_path / "m.onnx").write_bytes(graph("y = Sum(x) z = Sum(x)").SerializeToString())

    def prints() -> list[str]:
        (run,) = sarif_document(scan(tmp_path), tmp_path, facts("2.6"))["runs"]
        return [result["partialFingerprints"]["place/v1"] for result in run["results"]]

    first = prints()
    assert len(set(first)) == 2
    (tmp_path / "m.onnx").write_bytes(graph("y = Relu(x) z = Sum(x)").SerializeToString())
    assert prints() == first[1:]


def test_of_a_folder_it_says_how_many_files_are_sound(tmp_path):
    for name, body in (("a", "y = Relu(x)"), ("b", "y = Sum(x)"), ("c", 'y = Gelu<approximate="tanh">(x)')):
        (tmp_path / f"{name}.onnx").write_bytes(graph(body, opset=20).SerializeToString())
    last = text_of(scan(tmp_path), tmp_path, "2.6").splitlines()[2 * 3]
    assert last.endswith("(Sentis 2.6); 2 of 3 files without errors and silent deviations")
    assert "files without" not in text_of(scan(tmp_path / "b.onnx"), tmp_path / "b.onnx", "2.6")
