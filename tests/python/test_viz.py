"""Pictures: DOT, SVG and HTML pages with details on click; scripts that run; growing curves."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import burtorch as bt
from burtorch import viz

SVG = "{http://www.w3.org/2000/svg}"


def tiny():
    graph = bt.Graph(reclaim=False)
    with graph:
        a, b = bt.Value(-41.0, label="a"), bt.Value(2.0, label="b")
        c = a + b
        d = a * b + b**3
        e = c - d
        g = e**2 / 2
    c.label, d.label, e.label, g.label = "c", "d", "e", "g"
    g.backward()
    return g


def small():
    graph = bt.Graph(reclaim=False)
    with graph:
        a, b = bt.Value(-4.0, label="a"), bt.Value(2.0, label="b")
        c, d = a + b, a * b + b**3
        c += c + 1
        c += 1 + c + (-a)
        d += d * 2 + (b + a).relu()
        d += 3 * d + (b - a).relu()
        e = c - d
        f = e**2
        g = f / 2.0
        g += 10.0 / f
    g.label = "g"
    g.backward()
    return g


def mlp():
    params = bt.Parameters(dtype="float64", seed=1)
    w1, b1 = params.tensor((3, 2), name="w1"), params.tensor(3, name="b1")
    w2 = params.tensor(3, name="w2")
    graph = bt.Graph(reclaim=False)
    with graph:
        x = graph.vector([0.5, -1.0])
        hidden = [bt.tanh(bt.inner_product(x, w1[k]) + b1[k]) for k in range(3)]
        loss = (bt.inner_product(hidden, w2) - 1.0) ** 2
    x[0].label, x[1].label, loss.label = "x0", "x1", "loss"
    loss.backward()
    return loss


GRAPHS = {"tiny": tiny, "small": small, "mlp": mlp}


def keep(picture, name):
    """Saves a picture to the gallery of the manual, if the environment says so."""
    folder = os.environ.get("BURTORCH_SCREENSHOTS")
    if folder:
        shutil.copyfile(picture, Path(folder) / name)


def gpt():
    params = bt.Parameters(dtype="float64", seed=1)
    table = bt.nn.Embedding(params, 5, 4, positions=3, name="tokens")
    block, head = bt.nn.Block(params, 4, 2, name="block"), bt.nn.Linear(params, 4, 5, name="head")
    graph = bt.Graph(reclaim=False)
    with graph:
        loss = head(block(table([0, 3, 1]))).cross_entropy([3, 1, 4])
    loss.label = "loss"
    loss.backward()
    return loss


AWKWARD = 'a "quoted" <b>&amp; {record|field} \\ back ]]> </script> ∇\x01'


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_to_string_is_one_line_about_the_node():
    g = tiny()
    graph = g.graph
    assert graph.labelled("c").to_string() == "c = add(a, b): data -39, grad 35, node 2"
    assert graph.labelled("a").to_string() == "a = leaf: data -41, grad -35, node 0"
    assert g.to_string().endswith(f"data 612.5, grad 1, node {g.index}")


@pytest.mark.parametrize("name", GRAPHS)
def test_an_svg_shows_every_node_and_link(name):
    root = GRAPHS[name]()
    svg = root.graph.to_svg(root)
    assert root.label in " ".join(texts(svg))
    boxes = [g for g in ET.fromstring(svg).iter(f"{SVG}g") if (g.get("class") or "").startswith("part")]
    dot = root.graph.to_dot(root)
    assert len(boxes) == len(re.findall(r"^  p\d+ \[", dot, re.M))
    assert len(re.findall(r"^  p\d+ -> p\d+;$", dot, re.M)) == svg.count("marker-end")
    assert sum("root" in g.get("class") for g in boxes) == 1
    if name == "tiny":
        assert {"a: leaf", "data -41", "grad -35", "grad 1050", "data 612.5"} <= set(texts(svg))
    if name == "mlp":
        assert "w1: parameters \u00d7 2" in texts(svg)


@pytest.mark.parametrize("name", GRAPHS)
def test_boxes_do_not_overlap_and_lie_right_of_their_operands(name):
    root = GRAPHS[name]()
    svg = ET.fromstring(root.graph.to_svg(root))
    places = {}
    for group in svg.iter(f"{SVG}g"):
        if group.get("data-part") is not None:
            rect = group.find(f"{SVG}rect")
            places[int(group.get("data-part"))] = [float(rect.get(k)) for k in ("x", "y", "width", "height")]
    for k, (x, y, w, h) in places.items():
        for j, (x2, y2, w2, h2) in places.items():
            apart = x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
            assert k == j or apart, (k, j)
    for line in root.graph.to_dot(root).splitlines():
        if "->" in line:
            from_, to = map(int, re.findall(r"p(\d+)", line))
            assert places[from_][0] + places[from_][2] < places[to][0]


def test_awkward_labels_are_taken_literally():
    graph = bt.Graph()
    with graph:
        a = bt.Value(1.0, label=AWKWARD)
        b = a * a
    svg = graph.to_svg(b)
    shown = AWKWARD.replace("\x01", "\ufffd")
    assert any(title.text.startswith(shown) for title in ET.fromstring(svg).iter(f"{SVG}title"))
    page = graph.to_html(b, title=AWKWARD)
    parts = json.loads(re.search(r'<script type="application/json" id="parts">(.*?)</script>', page, re.S)[1])
    assert parts[0]["label"] == AWKWARD
    if shutil.which("dot"):
        done = subprocess.run(["dot", "-Tsvg"], input=graph.to_dot(b), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_large_graphs_are_cut_with_a_count():
    graph = bt.Graph(reclaim=False)
    with graph:
        y = bt.Value(1.0)
        for _ in range(1999):
            y = bt.sin(y)
    svg = graph.to_svg(y, max_nodes=20)
    assert "and 1980 more nodes" in texts(svg)
    assert svg.count('class="part') == 21
    assert "and 1850 more nodes" in graph.to_dot(y)
    wide = bt.Graph()
    total = bt.reduce_sum(wide.vector([0.0] * 5000))
    assert "leaf \u00d7 5000" in texts(wide.to_svg(total))
    for bad in (0, -1):
        with pytest.raises((ValueError, OverflowError)):
            graph.to_svg(y, max_nodes=bad)


def test_roots_may_be_several_or_none():
    graph = bt.Graph()
    assert ET.fromstring(graph._repr_svg_()).tag == f"{SVG}svg"
    with graph:
        a = bt.Value(1.0, label="a")
        b, c = a * 2, bt.exp(a)
    assert graph.to_svg() == graph.to_svg([b, c])
    assert graph._repr_svg_() in graph._repr_html_()
    with pytest.raises(TypeError):
        graph.to_svg(1.0)
    with pytest.raises(bt.GraphMismatchError):
        graph.to_svg(bt.Value(1.0, graph=bt.Graph()))


def test_drawing_changes_nothing():
    root = mlp()
    graph = root.graph
    before = graph.raw_bytes(what="both")
    page = graph.to_html(root)
    assert graph.raw_bytes(what="both") == before
    parts = json.loads(re.search(r'<script type="application/json" id="parts">(.*?)</script>', page, re.S)[1])
    timed = {part["op"] for part in parts if part["ns"] is not None}
    assert {"tanh", "inner_product"} <= timed
    assert "leaf" not in timed


# In a browser.

CLICK = """<script>
const box = document.querySelectorAll('.part')[{k}];
box.dispatchEvent(new MouseEvent('click', {{bubbles: true}}));
</script>"""


def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    return found


def chromium(tmp_path, *options):
    command = [browser(), "--headless", "--disable-gpu", "--no-sandbox", "--hide-scrollbars"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", GRAPHS)
def test_a_click_in_a_browser_explains_the_node(tmp_path, name):
    root = GRAPHS[name]()
    page = Path(viz.show(root, tmp_path / f"{name}.html", browser=False))
    text = page.read_text(encoding="utf-8")
    parts = json.loads(re.search(r'id="parts">(.*?)</script>', text, re.S)[1])
    k = next(k for k, part in enumerate(parts) if part["label"] == root.label)
    clicked = tmp_path / "clicked.html"
    clicked.write_text(text.replace("</body>", CLICK.format(k=k) + "</body>"), encoding="utf-8")
    shown = chromium(tmp_path, "--dump-dom", clicked.as_uri())
    fields = dict(re.findall(r'<dd data-field="([^"]+)">(.*?)</dd>', shown, re.S))
    assert fields["op"] == root.op
    assert float(fields["value"]) == pytest.approx(root.data, rel=1e-5)
    assert float(fields["gradient"]) == 1.0
    assert "dx =" in fields["formula"]
    assert "ns per evaluation" in fields["time"]
    assert fields["reads"].count("<button>") >= 1
    assert 'class="part root chosen"' in shown
    target = tmp_path / "page.png"
    chromium(tmp_path, f"--screenshot={target}", "--window-size=1500,620", clicked.as_uri())
    assert is_png(target)
    keep(target, f"{name}-page.png")


@pytest.mark.parametrize("name", [*GRAPHS, "gpt"])
def test_an_svg_opens_in_a_browser(tmp_path, name):
    root = gpt() if name == "gpt" else GRAPHS[name]()
    path = tmp_path / f"{name}.svg"
    path.write_text(root.graph.to_svg(root), encoding="utf-8")
    shown = chromium(tmp_path, "--dump-dom", path.as_uri())
    assert 'class="part root"' in shown
    keep(path, path.name)


# Scripts.


def is_png(path):
    return Path(path).read_bytes().startswith(b"\x89PNG")


def test_scripts_run_in_another_interpreter(tmp_path):
    pytest.importorskip("matplotlib")
    heat = viz.heat_map_script([[1.0, float("nan")], [-0.1, 1e300]], ["it's", 'a "b"\\'])
    path = viz.run(heat, tmp_path / "heat.png")
    assert is_png(path)
    table = [[1.0 / (1 + i + j) for j in range(6)] for i in range(6)]
    keep(viz.run(viz.heat_map_script(table, list("abcdef")), path), "heat-map.png")
    curve = viz.run(viz.plot_script(lambda x: bt.Value(x).tanh(), -3.0, 3.0, 50))
    assert is_png(curve)
    keep(curve, "plot.png")
    os.remove(curve)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        viz.run("1 / 0")


def test_scripts_hold_their_numbers_to_the_last_bit():
    xs = [0.1, 1 / 3, 5e-324, -0.0, float("inf")]
    script = viz.heat_map_script([xs])
    row = re.search(r"^    \[(.*)\],$", script, re.M)[1]
    assert [float(text) for text in row.split(", ")] == xs
    assert viz.heat_map_script("ab", item_getter=lambda m, i, j: ord(m[j]), counter_getter=lambda m: (1, len(m))).count(
        "[97.0, 98.0]"
    )
    for bad in ([], [[]], [[1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError):
            viz.heat_map_script(bad)
    with pytest.raises(ValueError):
        viz.plot_script(abs, 0.0, 1.0, 0)
    with pytest.raises(TypeError):
        viz.heat_map_script([[None]])


def test_drawing_directly():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")

    axes = viz.plot(lambda x: x * x, 0.0, 1.0, 5)
    assert list(axes.lines[0].get_ydata()) == [0.0, 0.0625, 0.25, 0.5625, 1.0]
    axes = viz.plot_loss({"step": [1, 2], "loss": [3.0, 2.0]})
    assert list(axes.lines[0].get_xdata()) == [1, 2]
    assert list(viz.plot_loss([4.0, 3.0], ax=axes).lines[1].get_xdata()) == [1, 2]
    assert viz.heat_map([[1.0, 2.0]], ["a", "b"]).images[0].get_array().shape == (1, 2)
    plt.close("all")


def test_a_live_curve_is_drawn_by_another_process(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "live.png"
    with viz.live(path, every=0.05) as curve:
        for step in range(500):
            curve.add(step, loss=1.0 / (1 + step), accuracy=step / 500)
    assert curve.error is None
    assert is_png(path)
    keep(path, "live.png")
    assert [entry.name for entry in tmp_path.iterdir()] == ["live.png"]
    broken = viz.Live(tmp_path / "no" / "such.png", every=0.01)
    broken.add(1, loss=1.0)  # the pipe holds it before that process has started
    with pytest.warns(RuntimeWarning, match="the drawing process failed: FileNotFoundError"):
        broken.close()
    broken.close()
    assert "FileNotFoundError" in broken.error
    broken.add(2, loss=1.0)


def test_the_command_draws_a_function(tmp_path, command):
    source = "import burtorch as bt\n\ndef f(a, b, c=2.0):\n    return bt.tanh(a * b) + c\n\nx = 3\n"
    source += "\n@bt.function\ndef traced(a, b):\n    return a * b + b**3\n"
    (tmp_path / "f.py").write_text(source)
    done = command("graph", "f.py:f", "--at", -1.5, 0.5, "--svg", "f.svg", "--html", "f.html", "--dot", "f.dot")
    assert done.returncode == 0, done.stderr
    assert {"a: leaf", "b: leaf", "data -1.5"} <= set(texts((tmp_path / "f.svg").read_text(encoding="utf-8")))
    assert (tmp_path / "f.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "f.dot").read_text(encoding="utf-8").startswith("digraph")
    assert command("graph", "f.py:f").stdout.startswith("digraph")
    assert "traced | add | data -74 | grad 1" in command("graph", "f.py:traced", "--at", -41, 2).stdout
    for at in ((-4.1e1, 2e0), ("-41", "2e+0"), ("-410e-1", "+.2e1")):
        assert "traced | add | data -74 | grad 1" in command("graph", "f.py:traced", "--at", *at).stdout
    for at, value in ((("-inf", "1"), "-inf"), (("1", "-Infinity"), "-inf"), (("-nan", "-.5e-3"), "NaN")):
        done = command("graph", "f.py:traced", "--at", *at)
        assert (done.returncode, f"data {value}" in done.stdout) == (0, True), done.stdout + done.stderr
    for args, said in [
        (("f.py:g",), "no function 'g'"),
        (("f.py:x",), "no function 'x'"),
        (("f.py",), "expected FILE.py:NAME"),
        (("no.py:f",), "no such file"),
        (("f.py:f", "--at", 1), "takes 2 arguments"),
        (("f.py:f", "--at", "one"), "expected a number"),
        (("f.py:f", "--at", "-1", "-2x"), "argument --at: '-2x': expected a number"),
        (("f.py:f", "--at", "-e3"), "argument --at: expected at least one argument"),
        (("f.py:f", "--svg", "no/f.svg"), "No such file"),
    ]:
        done = command("graph", *args)
        assert (done.returncode in (1, 2), said in done.stderr) == (True, True), done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("root", [3, "x", None, [3], [1.0], {"a": 1}])
def test_non_values_are_not_shown(root):
    with pytest.raises(TypeError, match="show\\(\\) takes a Value, or several of one graph, found"):
        bt.viz.show(root, browser=False)
