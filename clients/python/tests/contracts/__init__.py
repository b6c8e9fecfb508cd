"""The interfaces of the engines, as data, and stand-ins built from it.

``<engine>.json`` beside this file has the *forms* of an engine's interface,
oldest first. A form is a JSON merge patch (RFC 7386: null removes) on the form
that it ``extends``:

    name     what tests call it
    about    what is new in it, in a sentence
    read     of which wheel, or repository@commit
    classes  dotted path of a class -> one of
               {"members": {name: value}}       an enumeration; "type": "str" if its members are texts
               {"fields": "(a, b=None)"}        a data class, by its constructor
               {"methods": {name: signature},   any other class; "sets" has the
                "sets": {attribute: source},    attributes that its constructor
                "attributes": {name: source}}   sets, from its parameters
             "partial" is true where a class has more that we do not use.
             A signature is Python: the first parameter says whether it is a
             method (self), a class method (cls) or a static one; its annotation
             is what the class itself answers, ``...`` an abstract method. The
             default ``...`` stands for any default.
    calls    event -> the engine's calls in their order, as Python over ``target``

Whatever else a form has is the engine's own, and in ``data``.

    form = contracts.load("vllm")[-1]
    form.install()                                       # for good, where there is no vLLM
    with form.installed("kvstored.vllm") as (module,):   # imported anew, finds the stand-ins
        tier = form.run("construct", module.KvstoredTier, spec=..., config=...)
        form.run("request", tier, req_context=...)

Of a real engine on the path, :func:`nearest` says which form it has, and by
name what of it is not in the data and what has gone. :meth:`Form.refused` says
which calls of a form a class of ours would not take.
"""

import abc
import ast
import contextlib
import dataclasses
import enum
import importlib
import inspect
import json
import sys
import types
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

_NONE = inspect.Signature.empty


class Form:
    """One version of an engine's interface."""

    def __init__(self, engine: str, data: Dict[str, Any]) -> None:
        self.engine, self.data, self.name = engine, data, data["name"]
        self.classes: Dict[str, Dict[str, Any]] = data["classes"]
        self.calls: Dict[str, List[str]] = data["calls"]
        self.stand_ins = {path: _build(path, described) for path, described in self.classes.items()}

    def __repr__(self) -> str:
        return f"{self.engine} {self.name}"

    def stand_in(self, name: str) -> Any:
        """The class of that name, None if this form has none."""
        return next((cls for path, cls in self.stand_ins.items() if path.endswith(f".{name}")), None)

    @contextlib.contextmanager
    def installed(self, *modules: str) -> Iterator[Tuple[Any, ...]]:
        """While it lasts the engine's modules are the stand-ins, and nothing else
        of the engine can be imported. Gives modules of ours, imported anew."""
        with _aside(self.engine, *modules):
            self.install()
            yield tuple(importlib.import_module(name) for name in modules)

    def install(self) -> None:
        """Makes the engine's modules the stand-ins, from now on."""
        for path, cls in self.stand_ins.items():
            module, _, name = path.rpartition(".")
            setattr(_module(module), name, cls)

    def run(self, event: str, target: Any, **given: Any) -> List[Any]:
        """Makes the engine's calls at an event, and returns their answers."""
        return [eval(call, {"target": target, **given}) for call in self.calls.get(event, ())]

    def refused(self, cls: Any) -> List[str]:
        """The calls that a class would not take."""
        return [f"{event}: {call}: {why}" for event, calls in self.calls.items() for call in calls for why in _refusal(cls, call)]


def load(engine: str) -> List[Form]:
    """The forms of an engine, oldest first."""
    described = json.loads(Path(__file__).with_name(f"{engine}.json").read_text())
    whole: Dict[str, Dict[str, Any]] = {}
    for form in described["forms"]:
        whole[form["name"]] = _patched(whole.get(form.get("extends"), {}), form)
    return [Form(engine, data) for data in whole.values()]


def _patched(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _patched(result.get(name), value)
    return result


# ---- stand-ins -----------------------------------------------------------------


def signature(text: str) -> inspect.Signature:
    return inspect.signature(_function("f", text, lambda values: None))


def _function(name: str, text: str, body: Any) -> Any:
    scope = {"_body": body}
    code = compile(f"def {name}{text}:\n    return _body(locals())", f"<{name}{text}>", "exec", dont_inherit=True)
    exec(code, scope)
    return scope[name]


def _build(path: str, described: Dict[str, Any]) -> Any:
    name = path.rpartition(".")[2]
    if "members" in described:
        return enum.Enum(name, described["members"], type={"str": str}.get(described.get("type")))
    namespace = {n: _method(n, text, described.get("sets", {})) for n, text in described.get("methods", {}).items()}
    namespace.update({n: eval(source) for n, source in described.get("attributes", {}).items()})
    if "fields" not in described:
        return abc.ABCMeta(name, (), namespace)
    fields = [
        (p.name, Any) if p.default is _NONE else (p.name, Any, dataclasses.field(default=p.default))
        for p in signature(described["fields"]).parameters.values()
    ]
    return dataclasses.make_dataclass(name, fields, namespace=namespace)


def _method(name: str, text: str, sets: Dict[str, str]) -> Any:
    answer = signature(text).return_annotation

    def body(values: Dict[str, Any]) -> Any:
        if name == "__init__":
            for attribute, source in sets.items():
                setattr(values["self"], attribute, eval(source, {}, values))
            return None
        return None if answer in (_NONE, ...) else answer

    function = _function(name, text, body)
    if answer is ...:
        function = abc.abstractmethod(function)
    return {"self": function, "cls": classmethod(function)}.get(_first(text), staticmethod(function))


def _first(text: str) -> str:
    return next(iter(signature(text).parameters), "")


def _module(name: str) -> types.ModuleType:
    """A module of the engine, and the packages that it is in."""
    if name not in sys.modules:
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = []  # type: ignore[attr-defined]  # a package, which has nothing else
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(_module(parent), child, module)
    return sys.modules[name]


@contextlib.contextmanager
def _aside(*roots: str) -> Iterator[None]:
    """Leaves these modules, and those in them, out of what is imported."""

    def imported() -> List[str]:
        return [n for n in sys.modules if any(f"{n}.".startswith(f"{root}.") for root in roots)]

    kept = {name: sys.modules.pop(name) for name in imported()}
    for name in kept:  # what "from . import" looks at first
        _in_parent(name, None)
    try:
        yield
    finally:
        for name in imported():
            del sys.modules[name]
        sys.modules.update(kept)
        for name, module in kept.items():
            _in_parent(name, module)


def _in_parent(name: str, module: Any) -> None:
    """Sets a module's attribute in the package that it is in, or deletes it."""
    package, _, child = name.rpartition(".")
    if package in sys.modules and module is not None:
        setattr(sys.modules[package], child, module)
    elif package in sys.modules:
        vars(sys.modules[package]).pop(child, None)


# ---- comparing -----------------------------------------------------------------


class Nearest(NamedTuple):
    form: Form
    differences: List[str]


def nearest(forms: List[Form]) -> Nearest:
    """The form that the engine on the path has, or is nearest to; the newest of several."""
    found = (Nearest(f, [d for path, data in f.classes.items() for d in differences(path, data)]) for f in forms[::-1])
    return min(found, key=lambda n: len(n.differences))


def differences(path: str, described: Dict[str, Any]) -> List[str]:
    """By name, what of a real class is not in the data, and what has gone."""
    module, _, name = path.rpartition(".")
    try:
        real = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        return [f"{path} is gone: {e}"]
    return compare(real, described)


def compare(real: Any, described: Dict[str, Any]) -> List[str]:
    name = real.__name__
    if "members" in described:
        return _names(f"{name}.", {m.name for m in real}, set(described["members"]))
    found: List[str] = []
    if "fields" in described:
        found += _parameters(name, inspect.signature(real), signature(described["fields"]))
    methods, known = described.get("methods", {}), {*described.get("attributes", {}), *described.get("sets", {})}
    if "fields" in described:
        known |= set(signature(described["fields"]).parameters)
    inherited = {n for base in real.__mro__ if base.__module__ == "builtins" for n in dir(base)} - set(methods)
    names = (n for n in dir(real) if n in methods or not n.startswith("_") and n not in inherited)
    public = {n: inspect.getattr_static(real, n) for n in names}
    functions = {n: f for n, f in public.items() if isinstance(f, (types.FunctionType, classmethod, staticmethod))}
    if described.get("partial"):
        public = {n: f for n, f in public.items() if n in methods or n in known}
    found += _names(f"{name}.", set(public) - known, set(methods) | (set(described.get("attributes", {})) - set(public)))
    for method, text in methods.items():
        if method in functions:
            abstract = method in getattr(real, "__abstractmethods__", ())
            found += _methods(f"{name}.{method}", functions[method], abstract, text)
    return found


def _names(of: str, real: Any, data: Any) -> List[str]:
    new = [f"{of}{n} is not in the data" for n in sorted(real - data)]
    return new + [f"{of}{n} is gone" for n in sorted(data - real)]


def _methods(name: str, real: Any, abstract: bool, text: str) -> List[str]:
    wanted, found = signature(text), []
    kind = {"self": types.FunctionType, "cls": classmethod}.get(_first(text), staticmethod)
    if not isinstance(real, kind):
        found.append(f"{name} is a {type(real).__name__}, in the data a {kind.__name__}")
    if abstract != (wanted.return_annotation is ...):
        found.append(f"{name} is {'' if abstract else 'not '}abstract, which the data says otherwise")
    return found + _parameters(name, inspect.signature(getattr(real, "__func__", real)), wanted)


def _parameters(name: str, real: inspect.Signature, data: inspect.Signature) -> List[str]:
    found = _names(f"{name}: ", set(real.parameters), set(data.parameters))
    if not found and list(real.parameters) != list(data.parameters):
        found.append(f"{name} takes {', '.join(real.parameters)}, in the data {', '.join(data.parameters)}")
    for p in data.parameters.values():
        r = real.parameters.get(p.name, p)
        if r.kind != p.kind:
            found.append(f"{name}: {p.name} is {r.kind.description}, in the data {p.kind.description}")
        if (r.default is _NONE) != (p.default is _NONE) or (p.default is not ... and r.default != p.default):
            found.append(f"{name}: {p.name} has the default {r.default!r}, in the data {p.default!r}")
    return found


def _refusal(cls: Any, text: str) -> List[str]:
    """Why a class would not take a call, nothing if it would."""
    call: Any = ast.parse(text, mode="eval").body
    if isinstance(call.func, ast.Name):  # of the class itself
        function, given = cls, 0
    elif not hasattr(cls, call.func.attr):
        return [f"{cls.__name__} has no {call.func.attr}"]
    else:
        raw = inspect.getattr_static(cls, call.func.attr)
        function, given = getattr(cls, call.func.attr), 0 if isinstance(raw, (classmethod, staticmethod)) else 1
    keywords = {k.arg: None for k in call.keywords if k.arg is not None}
    try:
        inspect.signature(function).bind(*[None] * (given + len(call.args)), **keywords)
    except TypeError as e:
        return [str(e)]
    return []
