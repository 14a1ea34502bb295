"""Methods on Flower: the same bits as in one process. Needs flwr with its simulation."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from burtorch import compress, flower, opt

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what flwr imports
needs_flwr = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None, reason="needs flwr (pip install 'burtorch[flower]')"
)


def test_sums_of_clients_are_those_of_the_tree():
    """Against a method that sums in Rust: FedAvg with clients whose gradients differ in size by many orders."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 5, 8, 13):
        targets = rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, size=n)
        f = opt.least_squares(rng.normal(size=(n, 2)), targets)
        sent = []
        cohort = opt.Nice(max(1, n - 1))

        class Alone:
            def here(self, n):
                return self.number, self.number + 1

            def gather(self, own, sent=sent):
                sent.append(own)
                return own

        for number in range(n):
            engine = Alone()
            engine.number = number
            opt.FedAvg(f, clients=n, cohort=cohort, step=0.1, engine=engine).run(1)
        method = opt.FedAvg(f, clients=n, cohort=cohort, step=0.1)
        method.run(1)
        total = flower._joined(sent)
        assert (total[0], len(total)) == (1.0, 3 + 2 + 4)
        assert ((1.0 / max(1, n - 1)) * total[3:5]).tobytes() == method.x.tobytes()


def test_without_flwr_the_error_says_what_to_install():
    if importlib.util.find_spec("flwr") is not None:
        pytest.skip("flwr is installed")
    with pytest.raises(ImportError, match=r"burtorch\[flower\]"):
        flower.client_app(lambda engine: None)


@needs_flwr
def test_the_simulation_gives_the_bits_of_one_process():
    script = Path(__file__).with_name("flower_hash.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=400)
    lines = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 2]
    assert [line[0] for line in lines] == ["EF21", "EF21 float32", "FedAvg", "MARINA"], done.stderr[-2000:]
    assert all(on_flower == local for _, on_flower, local in lines)


def test_the_script_imports_without_flwr_only_what_it_says():
    """`import burtorch.flower` needs neither flwr nor NumPy."""
    code = "import sys, burtorch.flower; print(sorted({'flwr', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Grid:
    """Flower nodes in this process; `lost(exchange, node)` says whether a "message" or its "reply" is lost."""

    def __init__(self, app, n, lost):
        import flwr.app
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as in a process of Flower
        self.app, self.lost, self.flwr = app, lost, flwr.app
        self.contexts = {
            10 + k: flwr.app.Context(
                run_id=1, node_id=10 + k, node_config={"partition-id": k}, state=flwr.app.RecordDict(), run_config={}
            )
            for k in range(n)
        }

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, timeout):
        replies = []
        for message in messages:
            node, exchange = message.metadata.dst_node_id, message.content["facts"]["exchange"]
            lost = self.lost(exchange, node - 10)
            if lost == "message":
                continue
            if lost == "error":
                replies.append(self.flwr.Message(self.flwr.Error(code=5, reason="gone"), reply_to=message))
                continue
            reply = self.app(message, self.contexts[node])
            if lost != "reply":
                replies.append(reply)
        return replies[::-1]


@needs_flwr
@pytest.mark.parametrize("start", ["gradient", "zero"])
@pytest.mark.parametrize("name", ["FedAvg", "EF21PP", "EF21PP float32", "Scaffold"])
def test_a_cohort_goes_on_without_clients_that_are_missing(name, start):
    """As if they had not been drawn, bit for bit; and they continue when they return."""
    n, rounds = 7, 12
    rng = np.random.default_rng(1)
    f = opt.least_squares(rng.normal(size=(30, 5)), rng.normal(size=30), l2=0.1)
    of = {
        "FedAvg": lambda **more: opt.FedAvg(f, local_steps=2, **more),
        "EF21PP": lambda **more: opt.EF21PP(f, compressor=compress.TopK(2), **more),
        "EF21PP float32": lambda **more: opt.EF21PP(f, compressor=compress.TopK(2), client_dtype="float32", **more),
        "Scaffold": lambda **more: opt.Scaffold(f, local_steps=2, **more),
    }[name]

    def make(engine):
        return of(clients=n, cohort=opt.Nice(4), step=0.05, seed=3, start=start, engine=engine)

    has_start = start == "gradient" and name != "FedAvg"

    def lost(exchange, k):
        away = (k == 2 and 3 <= exchange < 8) or (k == 5 and exchange == 6)
        kinds = ("message", "reply", "error")
        return kinds[(exchange + k) % 3] if away and exchange >= has_start else None

    engine = flower._ServerEngine(Grid(flower.client_app(make), n, lost), n, 1.0)
    method = make(engine)
    engine.may_miss = True
    flower._run(method, rounds, None)
    local = make("local")
    for k in range(rounds):
        rows = local.state_dict()["arrays"]
        local._runner.step(local.gamma, missing=[c for c in range(n) if lost(k + has_start, c)])
    assert method.x.tobytes() == local.x.tobytes()
    whole = make("local")
    whole.run(rounds)
    assert whole.x.tobytes() != local.x.tobytes()
    # The clients' state before the last exchange.
    for client, context in enumerate(engine.grid.contexts.values()):
        kept = dict(zip(context.state["facts"]["names"], context.state["state"].to_numpy_ndarrays()))
        for key in (key for key in kept if key.endswith("_i")):
            assert kept[key].tobytes() == rows[key].reshape(n, -1)[client].tobytes()
    # All clients of the cohort know all exchanges except the last.
    assert min(engine.known.values()) == engine.exchanges - 1
    assert len(engine.told) == 1


@needs_flwr
def test_a_round_is_refused_where_all_clients_take_part():
    f = opt.least_squares(np.eye(6), np.ones(6))

    def make(engine):
        return opt.EF21(f, clients=3, compressor=compress.TopK(2), step=0.1, engine=engine)

    def run(lost):
        engine = flower._ServerEngine(Grid(flower.client_app(make), 3, lost), 3, 1.0)
        flower._run(make(engine), 4, None)

    run(lambda exchange, k: None)
    with pytest.raises(RuntimeError, match=r"exchange 2: the clients \[1\] have not answered"):
        run(lambda exchange, k: "message" if (exchange, k) == (2, 1) else None)
    with pytest.raises(RuntimeError, match="exchange 2: a client failed: gone"):
        run(lambda exchange, k: "error" if (exchange, k) == (2, 1) else None)


@needs_flwr
def test_messages_that_were_changed_are_refused():
    import flwr.app

    numbers = np.arange(5.0)
    content = flower._packed([(numbers, [1, 4]), (numbers[:0], [])], exchange=3)
    told, facts = flower._unpacked(content)
    assert [(part.tolist(), gone) for part, gone in told] == [(numbers.tolist(), [1, 4]), ([], [])]
    assert facts["exchange"] == 3
    for wrong in (numbers[:-1], numbers[::-1].copy(), numbers.astype(np.float32), numbers.reshape(1, 5)):
        content["numbers"] = flwr.app.ArrayRecord([wrong, numbers[:0]])
        with pytest.raises(ValueError, match="of a message do"):
            flower._unpacked(content)
    content["numbers"] = flwr.app.ArrayRecord([numbers])
    with pytest.raises(ValueError, match="of a message does"):
        flower._unpacked(content)
