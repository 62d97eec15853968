"""Passes that replace single nodes: where the scanner's rules find something, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from converters.passes.base import OPERATOR_FINDINGS, Context, Outcome, Pass
from converters.passes.emit import Emit, Refusal
from converters.scan.model import opset_of
from converters.scan.operators import STANDARD, full_name, label_of
from converters.scan.predicates import holds
from converters.scan.view import Place
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

Write = Callable[[Place, Emit], None]
# what a writer meets in a node that no checker would take: it is left, and the scan says what is wrong with it
UNFIT = (IndexError, KeyError, ValueError, TypeError, ZeroDivisionError, OverflowError, StageError)
SWEEPS = 60  # behind an operator that nobody knows nothing is known: a chain of them is mended from its front


def node_pass(
    name: str,
    why: str,
    write: Write,
    *,
    mends: Iterable[str] = (),
    operators: Iterable[str] = (),
    also: Callable[[Place], bool] | None = None,
    by_design: str = "",
    on_request: bool = False,
    grows: str = "",
    again: bool = False,
    found: Iterable[str] | None = None,
    undone_as: Iterable[str] = (),
) -> Pass:
    """Return a pass that replaces nodes.

    Args:
        name: for `--only`.
        why: the rule of Sentis behind it.
        write: writes what replaces a node, or raises `Refusal`; it is called where a rule of `mends` holds, or where
            the operator is one of `operators` and Sentis does not import it.
        mends: ids of rules.
        operators: `Name` or `domain::Name`.
        also: another condition under which one of `operators` is meant; its finding is ATTRIBUTE.IGNORED.
        by_design: why its numbers change.
        on_request: whether it runs only when it is named.
        grows: why it may add more than the growth budget.
        again: whether it may replace what it wrote itself.
        undone_as: layers that the optimiser may not make of what is written.
        found: ids of the findings that it mends where they are not those of `mends` and `operators`.
    """
    rules, wanted = tuple(mends), tuple(operators)

    def run(model: onnx.ModelProto, context: Context) -> Outcome:
        def is_wanted(place: Place) -> bool:
            return _is_wanted(place, rules, wanted) or (
                also is not None and full_name(place.node) in wanted and also(place)
            )

        return _run(model, context, name, write, (rules, wanted, is_wanted), limited=not grows, again=again)

    named = ("ATTRIBUTE.IGNORED",) if also is not None else OPERATOR_FINDINGS
    findings = (*rules, *(named if wanted else ())) if found is None else tuple(found)
    return Pass(name, why, findings, run, by_design, wanted, on_request, grows, tuple(undone_as))


def _run(
    model: onnx.ModelProto, context: Context, name: str, write: Write,
    matching: tuple[tuple[str, ...], tuple[str, ...], Callable[[Place], bool]], *, limited: bool, again: bool,
) -> Outcome:  # fmt: skip
    outcome, known = Outcome(), context.known
    rules, wanted, is_wanted = matching
    asked = {op for rule in rules if rule in known.rules for op in known.rules[rule].ops}
    asked |= {operator.rpartition("::")[2] for operator in wanted}
    written, tag = set[str](), f"/{name}_"  # what it wrote, now or in an earlier round, it leaves
    for _ in range(SWEEPS):
        if not any(node.op_type in asked for node in model.graph.node):
            break
        outcome.left = {}
        view, opset = context.view(model), opset_of(model)
        taken = names_of(model.graph)
        replaced: dict[int, Emit] = {}
        for index, node in enumerate(model.graph.node):
            if node.op_type not in asked or written.intersection(node.output) or (tag in node.name and not again):
                continue
            place = Place(node, view, opset, known)
            if not is_wanted(place):
                continue
            label, emit = label_of(node), Emit(place, taken, name)
            if not context.room():
                continue
            try:
                write(place, emit)
                _refuse_growth(emit, context, limited)
            except Refusal as reason:
                outcome.left[label] = str(reason)
                continue
            except UNFIT as error:
                outcome.left[label] = (
                    f"its inputs or attributes do not fit its operator ({type(error).__name__}: {error})"
                )
                continue
            context.spend(emit.constant_bytes if limited else 0)
            outcome.changed += 1
            outcome.places.append(f"{full_name(node)} {label}")
            if not again:
                written.update(output for made in emit.nodes for output in made.output)
            replaced[index] = emit
        if not replaced:
            break
        splice(model.graph, replaced)
        context.forget()
    return outcome


def _is_wanted(place: Place, rules: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    node, known = place.node, place.known
    if full_name(node) in wanted and (node.domain not in STANDARD or node.op_type not in known.operators):
        return True
    if node.domain not in STANDARD:
        return False  # another operator of that name
    return any(rule.id in rules and holds(rule.when, place) for rule in known.rules_of.get(node.op_type, ()))


def _refuse_growth(emit: Emit, context: Context, limited: bool) -> None:
    if limited and emit.constant_bytes > context.growth_bytes:
        left = f"{context.growth_bytes} are left to add (--growth)"
        raise Refusal(f"it would add {emit.constant_bytes} bytes of constants, {left}")


def names_of(graph: onnx.GraphProto) -> set[str]:
    """Return every name in a graph, of tensors and nodes, those of its bodies included."""
    from converters.scan.graphs import graphs_in

    names = {value.name for value in (*graph.input, *graph.output)} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        names.update((node.name, *node.input, *node.output))
        for attribute in node.attribute:
            for inner in graphs_in(attribute):
                names |= names_of(inner)
    return names


def splice(graph: onnx.GraphProto, replaced: dict[int, Emit]) -> None:
    """Put new nodes where the old ones were, and drop constants that only those read."""
    import onnx

    from converters.scan.graphs import names_read

    nodes: list[onnx.NodeProto] = []
    given_up: set[str] = set()
    for index, node in enumerate(graph.node):
        if index in replaced:
            nodes += replaced[index].nodes
            given_up.update(names_read(node))
        else:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            nodes.append(copy)
    del graph.node[:]
    graph.node.extend(nodes)
    made = {name for emit in replaced.values() for node in emit.nodes for name in node.output}
    for told in [value for value in graph.value_info if value.name in made]:
        graph.value_info.remove(told)  # its type may be another now
    for emit in replaced.values():
        read = {name for node in emit.nodes for name in names_read(node)}
        read |= emit.results
        graph.initializer.extend(tensor for name, tensor in emit.constants.items() if name in read)
    drop_unread(graph, given_up)


def drop_unread(graph: onnx.GraphProto, names: set[str]) -> None:
    """Drop what makes tensors that nothing reads any more, back to initialisers; inputs of the model stay."""
    from converters.scan.graphs import names_read

    kept = {value.name for value in (*graph.input, *graph.output)}
    names = set(names)
    while names:
        read = {name for node in graph.node for name in names_read(node)} | kept
        names = {name for name in names if name and name not in read}
        if not names:
            return
        for tensor in [tensor for tensor in graph.initializer if tensor.name in names]:
            graph.initializer.remove(tensor)
        dead = [n for n in graph.node if names.intersection(n.output) and not read.intersection(filter(None, n.output))]
        names = {name for node in dead for name in names_read(node)}
        for node in dead:
            graph.node.remove(node)
