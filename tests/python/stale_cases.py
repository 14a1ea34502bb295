"""Cases of traced functions that read a number which then changes, as rows of source code.

A row contains a name, setup statements, the body's expression of ``x`` (or statements ending with a ``return``), and
statements that change something. Each row runs at the top of a module and inside a function, so that names are
globals in one case and closure cells in the other.
"""

# ruff: noqa: E501
from __future__ import annotations

import ast
import itertools
import sys
import textwrap
import types

NAMES = r"""
number | k = 2.0 | x * k | k = 3.0
number deleted and set again | k = 2.0 | x * k | del k; k = 5.0
negative zero | k = 0.0 | bt.atan2(x * 0.0, x * 0.0 - 1.0) + (1.0 if str(k) == '0.0' else 2.0) | k = -0.0
int for float | k = 1.0 | x * (2.0 if isinstance(k, int) else 3.0) | k = 1
bool for int | k = 1 | x * (2.0 if k is True else 3.0) | k = True
int beyond 2**53 | k = 2**53 | x * (k - 2**53 + 1) | k = 2**53 + 1
int beyond 2**64 | k = 2**70 | x * float(k - 2**70 + 1) | k = 2**70 + 2
negative int beyond 2**53 | k = -(2**60) | x * float(k + 2**60 + 1) | k = -(2**60) + 5
complex | k = 2 + 1j | x * k.imag | k = 2 + 3j
text | k = 'a' | x * len(k) | k = 'abc'
bytes | k = b'a' | x * k[0] | k = b'b'
None | k = None | x if k is None else x * k | k = 4.0
decimal | import decimal; k = decimal.Decimal('1.5') | x * float(k) | k = decimal.Decimal('2.5')
fraction | import fractions; k = fractions.Fraction(1, 2) | x * float(k) | k = fractions.Fraction(3, 4)
tuple | k = (1.0, 2.0) | x * k[1] | k = (1.0, 3.0)
function replaced | f = lambda x: x * 2.0 | f(x) | f = lambda x: x * 3.0
function of a function | k = 2.0; g = lambda x: x * k; f = lambda x: g(x) | f(x) | k = 3.0
function deep down | k = 2.0; g0 = lambda x: x * k; g1 = lambda x: g0(x); g2 = lambda x: g1(x); g3 = lambda x: g2(x) | g3(x) | k = 3.0
undefined then defined in builtins | import builtins | x * __import__('builtins').__dict__.get('bt_stale_k', 2.0) | builtins.bt_stale_k = 3.0
"""

CONTAINERS = r"""
list item | k = [2.0] | x * k[0] | k[0] = 3.0
list append | k = [2.0] | x * sum(k) | k.append(3.0)
list of lists | k = [[2.0]] | x * k[0][0] | k[0][0] = 3.0
list reversed | k = [2.0, 3.0] | x * k[0] | k.reverse()
list sorted | k = [3.0, 2.0] | x * k[0] | k.sort()
list slice | k = [1.0, 2.0, 3.0] | x * sum(k[1:]) | k[1:] = [7.0]
list comprehension | k = [1.0, 2.0] | sum([x * w for w in k]) | k[0] = 9.0
generator expression | k = [1.0, 2.0] | sum(x * w for w in k) | k[0] = 9.0
dict item | k = {'a': 2.0} | x * k['a'] | k['a'] = 3.0
dict get default | k = {} | x * k.get('a', 2.0) | k['a'] = 3.0
dict in | k = {} | x * (2.0 if 'a' in k else 1.0) | k['a'] = None
dict len | k = {} | x * (1.0 + len(k)) | k['a'] = None
dict order | k = {'a': 1.0, 'b': 2.0} | x * list(k.values())[0] | k['a'] = k.pop('a')
dict view values | d = {'a': 1.0}; k = d.values() | x * sum(k) | d['a'] = 2.0
dict view keys | d = {'a': 1.0}; k = d.keys() | x * len(k) | d['b'] = 2.0
dict view items | d = {'a': 1.0}; k = d.items() | x * sum(v for _, v in k) | d['a'] = 2.0
mappingproxy | import types; d = {'a': 1.0}; k = types.MappingProxyType(d) | x * k['a'] | d['a'] = 2.0
bound get of a dict | d = {'a': 1.0}; k = d.get | x * k('a') | d['a'] = 2.0
bound method of a list | d = [1.0, 1.0]; k = d.count | x * k(1.0) | d.append(1.0)
defaultdict | import collections; k = collections.defaultdict(float, a=2.0) | x * k['a'] | k['a'] = 3.0
OrderedDict | import collections; k = collections.OrderedDict(a=2.0, b=3.0) | x * next(iter(k.values())) | k.move_to_end('a')
Counter | import collections; k = collections.Counter('aab') | x * k['a'] | k.update('a')
ChainMap | import collections; d = {'a': 1.0}; k = collections.ChainMap({}, d) | x * k['a'] | d['a'] = 2.0
UserDict | import collections; k = collections.UserDict(a=1.0) | x * k['a'] | k['a'] = 2.0
UserList | import collections; k = collections.UserList([1.0]) | x * k[0] | k[0] = 2.0
deque | import collections; k = collections.deque([1.0, 2.0]) | x * k[0] | k.rotate(1)
deque of lists | import collections; k = collections.deque([[1.0]]) | x * k[0][0] | k[0][0] = 2.0
set | k = {1.0} | x * len(k) | k.add(2.0)
set membership | k = {1.0} | x * (2.0 if 5.0 in k else 1.0) | k.add(5.0)
frozenset replaced | k = frozenset([1.0]) | x * len(k) | k = frozenset([1.0, 2.0])
list in tuple | k = ([1.0],) | x * k[0][0] | k[0][0] = 2.0
list in dict in tuple | k = ({'a': [1.0]},) | x * k[0]['a'][0] | k[0]['a'][0] = 2.0
list filled lazily | k = [] | k.append(s[0]) or x * k[0] if not k else x * k[0] | k[0] = 7.0 | s = [2.0]
list of lists filled lazily | k = []; s = [2.0] | (k or k.append([s[0]])) and None or x * k[0][0] | k[0][0] = 7.0
dict filled lazily | k = {} | x * k.setdefault('a', 2.0) | k['a'] = 7.0
array.array | import array; k = array.array('d', [1.0]) | x * k[0] | k[0] = 2.0
array.array grows | import array; k = array.array('d', [1.0]) | x * len(k) | k.append(2.0)
bytearray | k = bytearray(b'a') | x * k[0] | k[0] = 5
memoryview | b = bytearray(b'a'); k = memoryview(b) | x * k[0] | b[0] = 5
ctypes array | import ctypes; k = (ctypes.c_double * 2)(1.0, 2.0) | x * k[1] | k[1] = 5.0
ctypes number | import ctypes; k = ctypes.c_double(1.0) | x * k.value | k.value = 5.0
range replaced | k = range(2) | x * sum(k) | k = range(4)
slice replaced | k = slice(0, 1); d = [1.0, 2.0] | x * sum(d[k]) | k = slice(0, 2)
heap | import heapq; k = [3.0, 4.0] | x * heapq.nsmallest(1, k)[0] | heapq.heappush(k, 1.0)
bisect | import bisect; k = [1.0, 5.0] | x * bisect.bisect(k, 2.0) | k.insert(0, 0.5)
"""

FUNCTIONS = r"""
default argument | \ndef f(x, k=[2.0]):\n    return x * k[0]\n | f(x) | f.__defaults__[0][0] = 3.0
defaults replaced | f = lambda x, k=2.0: x * k | f(x) | f.__defaults__ = (3.0,)
loop variable as default | fs = [lambda x, l=l: x * l for l in (1.0, 2.0)] | fs[0](x) + fs[1](x) | fs[1].__defaults__ = (9.0,)
loop variable in cells | fs = [(lambda k: lambda x: x * k[0])([l]) for l in (1.0, 2.0)] | fs[1](x) | fs[1].__closure__[0].cell_contents[0] = 9.0
object in a default | import types; o = types.SimpleNamespace(k=1.0); f = lambda x, o=o: x * o.k | f(x) | o.k = 2.0
keyword default | \ndef f(x, *, k=2.0):\n    return x * k\n | f(x) | f.__kwdefaults__['k'] = 3.0
keyword defaults replaced | \ndef f(x, *, k=2.0):\n    return x * k\n | f(x) | f.__kwdefaults__ = {'k': 3.0}
code replaced | f = lambda x: x * 2.0; g = lambda x: x * 3.0 | f(x) | f.__code__ = g.__code__
function attribute | f = lambda x: x * f.k; f.k = 2.0 | f(x) | f.k = 3.0
function attribute added | f = lambda x: x * getattr(f, 'k', 2.0) | f(x) | f.k = 3.0
function dict attribute | f = lambda x: x * f.__dict__['k']; f.k = 2.0 | f(x) | f.k = 3.0
partial | import functools; d = [2.0]; f = functools.partial(lambda d, x: x * d[0], d) | f(x) | d[0] = 3.0
partial keywords | import functools; f = functools.partial(lambda x, k: x * k, k=2.0) | f(x) | f.keywords['k'] = 3.0
partial of a partial | import functools; d = [2.0]; f = functools.partial(functools.partial(lambda d, x: x * d[0], d)) | f(x) | d[0] = 3.0
partial of a function that reads | import functools; k = 2.0; f = functools.partial(lambda x: x * k) | f(x) | k = 3.0
partialmethod | import functools\nclass C:\n    k = 2.0\n    def m(self, a, x):\n        return self.k * x + a\n    n = functools.partialmethod(m, 1.0)\no = C() | o.n(x) | C.k = 3.0
wraps | import functools; k = 2.0\ndef deco(g):\n    @functools.wraps(g)\n    def wrapper(x):\n        return g(x) * k\n    return wrapper\nf = deco(lambda x: x + 1.0) | f(x) | k = 3.0
wrapped reads | import functools; k = 2.0\ndef deco(g):\n    @functools.wraps(g)\n    def wrapper(x):\n        return g(x)\n    return wrapper\nf = deco(lambda x: x * k) | f(x) | k = 3.0
decorator without wraps | k = 2.0\ndef deco(g):\n    def wrapper(x):\n        return g(x)\n    return wrapper\nf = deco(lambda x: x * k) | f(x) | k = 3.0
decorator with a state | \ndef deco(s):\n    def inner(g):\n        def wrapper(x):\n            return g(x) * s[0]\n        return wrapper\n    return inner\ns = [2.0]\nf = deco(s)(lambda x: x) | f(x) | s[0] = 3.0
singledispatch | import functools; k = 2.0\n@functools.singledispatch\ndef f(x):\n    return x * k\n | f(x) | k = 3.0
singledispatch registered later | import functools\n@functools.singledispatch\ndef f(k, x):\n    return x * 2.0\n | f(1, x) | f.register(int, lambda k, x: x * 3.0)
closure of a closure | \ndef outer(d):\n    def middle():\n        def inner(x):\n            return x * d[0]\n        return inner\n    return middle()\nd = [2.0]; f = outer(d) | f(x) | d[0] = 3.0
nonlocal setter | \ndef pair():\n    k = 2.0\n    def read(x):\n        return x * k\n    def write(v):\n        nonlocal k\n        k = v\n    return read, write\nread, write = pair() | read(x) | write(3.0)
lambda in a dict | k = 2.0; fs = {'a': lambda x: x * k} | fs['a'](x) | k = 3.0
function in an object | import types; k = 2.0; o = types.SimpleNamespace(f=lambda x: x * k) | o.f(x) | k = 3.0
map with a lambda | k = 2.0 | sum(map(lambda v: v * k, [x, x])) | k = 3.0
map with a function | k = 2.0; f = lambda v: v * k | sum(map(f, [x, x])) | k = 3.0
reduce | import functools; k = 2.0; f = lambda a, b: a * k + b | functools.reduce(f, [x, x, x]) | k = 3.0
sorted key | d = {'a': 1.0, 'b': 2.0}; key = lambda n: d[n] | x * d[sorted('ab', key=key)[0]] | d['a'] = 9.0
filter | k = 0.0; f = lambda v: v > k | x * sum(filter(f, [1.0, 2.0])) | k = 1.5
inner function | k = 2.0 | (lambda v: v * k)(x) | k = 3.0
recursive function | k = 2.0\ndef f(x, n):\n    return x if n == 0 else f(x * k, n - 1)\n | f(x, 3) | k = 3.0
generator function | k = 2.0\ndef f(x):\n    yield x * k\n    yield x\n | sum(f(x)) | k = 3.0
generator with send | k = 2.0\ndef f(x):\n    y = yield x\n    yield y * k\n | (lambda g: (next(g), g.send(x)))(f(x))[1] | k = 3.0
lru_cache cleared | import functools; d = [2.0]\n@functools.lru_cache\ndef f():\n    return d[0]\n | x * f() | d[0] = 3.0; f.cache_clear()
lru_cache with a key | import functools; d = [2.0]\n@functools.lru_cache(maxsize=None)\ndef f(n):\n    return d[0] * n\n | x * f(1) | d[0] = 3.0; f.cache_clear()
static method as function | k = 2.0\nclass C:\n    @staticmethod\n    def f(x):\n        return x * k\n | C.f(x) | k = 3.0
operator.itemgetter | import operator; d = [1.0, 2.0]; g = operator.itemgetter(1) | x * g(d) | d[1] = 3.0
operator.itemgetter replaced | import operator; d = [1.0, 2.0]; g = operator.itemgetter(1) | x * g(d) | g = operator.itemgetter(0)
operator.attrgetter | import operator, types; o = types.SimpleNamespace(k=2.0); g = operator.attrgetter('k') | x * g(o) | o.k = 3.0
operator.methodcaller | import operator\nclass C:\n    k = 2.0\n    def m(self):\n        return self.k\no = C(); g = operator.methodcaller('m') | x * g(o) | o.k = 3.0
function by globals() | k = 2.0 | x * globals().get('k', k) | k = 3.0
eval | k = [2.0] | x * eval('k[0]', {'k': k}) | k[0] = 3.0
traced function inside | k = 2.0; g = bt.function(lambda x: x * k) | g(x) + 1.0 | k = 3.0
traced function of numbers | k = 2.0; g = bt.function(lambda x: x * k) | x * g(1.0) | k = 3.0
traced function of numbers, seen before | k = 2.0; g = bt.function(lambda x: x * k); g(1.0); g(1.0) | x * g(1.0) | k = 3.0
exec in a namespace | ns = {'k': 2.0}; exec('def f(x): return x * k', ns); f = ns['f'] | f(x) | ns['k'] = 3.0
types.FunctionType | import types; k = [2.0]; ns = {'k': k}; f = types.FunctionType((lambda x: x * k[0]).__code__.replace(co_freevars=()) if False else compile('x * k[0]', 'f', 'eval'), ns); ns['x'] = 1.0 | x * f() | k[0] = 3.0
singleton function method | import types\nclass C:\n    k = 2.0\no = C(); o.f = types.MethodType(lambda self, x: self.k * x, o) | o.f(x) | o.k = 3.0
callable in a list of partials | import functools; d = [1.0]; fs = [functools.partial(lambda d, x: d[0] * x, d)] | sum(f(x) for f in fs) | d[0] = 4.0
contextmanager function | import contextlib; k = 2.0\n@contextlib.contextmanager\ndef scope():\n    yield k\n | (lambda c: (c.__enter__(), c.__exit__(None, None, None))[0])(scope()) * x | k = 3.0
coroutine by hand | k = 2.0\nasync def f(x):\n    return x * k\ndef run(c):\n    try:\n        c.send(None)\n    except StopIteration as s:\n        return s.value\n | run(f(x)) | k = 3.0
"""

OBJECTS = r"""
getattr added | \nclass C: pass\no = C()\n | x * getattr(o, 'k', 2.0) | C.__getattr__ = lambda self, n: 3.0
getattribute added | \nclass C:\n    k = 2.0\no = C()\n | x * o.k | C.__getattribute__ = lambda self, n: 3.0
metaclass getattr | \nclass M(type): pass\nclass C(metaclass=M): pass\n | x * getattr(C, 'k', 2.0) | M.__getattr__ = lambda c, n: 3.0
metaclass replaced | \nclass M(type): k = 2.0\nclass N(type): k = 3.0\nclass C(metaclass=M): pass\n | x * C.k | C.__class__ = N
metaclass attribute | \nclass M(type): k = 2.0\nclass C(metaclass=M): pass\n | x * C.k | M.k = 3.0
metaclass call | \nclass M(type):\n    def __call__(cls): return 2.0\nclass C(metaclass=M): pass\n | x * C() | M.__call__ = lambda cls: 3.0
descriptor state | \nclass D:\n    k = 2.0\n    def __get__(self, o, t=None): return self.k\nclass C:\n    v = D()\no = C()\n | x * o.v | C.__dict__['v'].k = 3.0
descriptor of dict | \nclass D:\n    def __init__(s): s.m = {}\n    def __get__(self, o, t=None): return self.m.get(id(o), 2.0)\nd = D()\nclass C:\n    v = d\no = C()\n | x * o.v | d.m[id(o)] = 3.0
instance shadows method | \nclass C:\n    def m(self): return 2.0\no = C()\n | x * o.m() | o.m = lambda: 3.0
partial dict attr | \nimport functools\np = functools.partial(lambda x: x)\np.k = 2.0\n | p(x) * p.k | p.k = 3.0
weakref target own dict | \nimport weakref\nclass C: pass\nc = C(); c.k = 2.0; r = weakref.ref(c)\n | x * r().k | c.__dict__ = {'k': 3.0}
weak value dict | \nimport weakref\nclass C: k = 2.0\nc = C(); d = weakref.WeakValueDictionary(a=c)\n | x * d['a'].k | c.k = 3.0
default factory | \nimport collections\nd = collections.defaultdict(lambda: 2.0)\n | x * d.default_factory() | d.default_factory = lambda: 3.0
class bool added | \nclass A: pass\no = A()\n | x * (2.0 if o else 3.0) | A.__bool__ = lambda self: False
abc register | \nimport abc\nclass P(abc.ABC): pass\nclass C: pass\no = C()\n | x * (3.0 if isinstance(o, P) else 2.0) | P.register(C)
isinstance of changed class | \nclass A: pass\nclass B: pass\no = A()\n | x * (2.0 if isinstance(o, A) else 3.0) | o.__class__ = B
exception attr | e = ValueError(); e.k = 2.0 | x * e.k | e.k = 3.0
int subclass dict | \nclass I(int): pass\ni = I(1); i.k = 2.0\n | x * i.k | i.__dict__ = {'k': 3.0}
tuple subclass dict | \nclass T(tuple): pass\ni = T((1,)); i.k = 2.0\n | x * i.k | i.__dict__ = {'k': 3.0}
list subclass dict | \nclass L(list): pass\ni = L([1]); i.k = 2.0\n | x * i.k | i.__dict__ = {'k': 3.0}
dict subclass dict | \nclass D(dict): pass\ni = D(); i.k = 2.0\n | x * i.k | i.__dict__ = {'k': 3.0}
exception own dict | e = ValueError(); e.k = 2.0 | x * e.k | e.__dict__ = {'k': 3.0}
own exception dict | \nclass E(Exception): pass\ne = E(); e.k = 2.0\n | x * e.k | e.__dict__ = {'k': 3.0}
partial own dict | \nimport functools\np = functools.partial(lambda x: x); p.k = 2.0\n | p(x) * p.k | p.__dict__ = {'k': 3.0}
partial setstate | \nimport functools\np = functools.partial(lambda x, k: x * k, k=2.0)\n | p(x) | p.__setstate__((p.func, (), {'k': 3.0}, None))
borg swapped | \nclass C:\n    def __init__(self, s): self.__dict__ = s\no = C({'k': 2.0})\n | x * o.k | o.__init__({'k': 3.0})
nested own dict | \nclass C: pass\no = C(); o.p = C(); o.p.k = 2.0\n | x * o.p.k | o.p.__dict__ = {'k': 3.0}
slots and dict | \nclass C:\n    __slots__ = ('a', '__dict__')\no = C(); o.k = 2.0\n | x * o.k | o.__dict__ = {'k': 3.0}
method of swapped | \nclass C:\n    def m(self): return self.k\no = C(); o.k = 2.0\n | x * o.m() | o.__dict__ = {'k': 3.0}
dict deleted | \nclass C:\n    k = 3.0\no = C(); o.k = 2.0\n | x * o.k | del o.__dict__
setstate | \nclass C:\n    def __setstate__(self, s): self.__dict__ = dict(s)\no = C(); o.k = 2.0\n | x * o.k | o.__setstate__({'k': 3.0})
function dict | \ndef f(x): return x * f.k\nf.k = 2.0\n | f(x) | f.__dict__ = {'k': 3.0}
function dict created | def f(x): return x * getattr(f, 'k', 2.0) | f(x) | f.k = 3.0
property getter function code | \nclass C:\n    @property\n    def v(self): return 2.0\no = C()\n | x * o.v | C.v.fget.__code__ = (lambda self: 3.0).__code__
nested function code | \ndef f(x):\n    def g(): return 2.0\n    return x * g()\n | f(x) | f.__code__ = f.__code__.replace(co_consts=tuple(c.replace(co_consts=(None, 3.0)) if hasattr(c, 'co_code') else c for c in f.__code__.co_consts))
lambda in dict | d = {'f': lambda x: x * 2.0} | d['f'](x) | d['f'].__code__ = (lambda x: x * 3.0).__code__
async function default | \nasync def g(k=2.0): return k\ndef run(c):\n    try: c.send(None)\n    except StopIteration as e: return e.value\n | x * run(g()) | g.__defaults__ = (3.0,)
class body default | \nclass C:\n    def m(self, k=2.0): return k\no = C()\n | x * o.m() | C.m.__defaults__ = (3.0,)
init default | \nclass C:\n    def __init__(self, k=2.0): self.k = k\n | x * C().k | C.__init__.__defaults__ = (3.0,)
new replaced | \nclass C:\n    k = 2.0\n | x * C().k | C.__new__ = staticmethod(lambda cls: type('Z', (), {'k': 3.0})())
str format | \nclass C:\n    def __format__(self, s): return '2.0'\no = C()\n | x * float(f'{o}') | C.__format__ = lambda self, s: '3.0'
text of an element | import xml.etree.ElementTree as e; k = e.Element('a'); k.text = '2' | x * float(k.text) | k.text = '3'
attribute of an element | import xml.etree.ElementTree as e; k = e.Element('a', n='2') | x * float(k.get('n')) | k.set('n', '3')
child of an element | import xml.etree.ElementTree as e; k = e.Element('a') | x * (1.0 + len(k)) | e.SubElement(k, 'b')
attribute | o.k = 2.0 | x * o.k | o.k = 3.0
attribute deleted | o.k = 2.0 | x * o.k | del o.k
class attribute | pass | x * o.k | C.k = 3.0
class attribute hidden | pass | x * o.k | o.k = 3.0
attribute of an attribute | o.p = C() | x * o.p.k | o.p.k = 3.0
attribute replaced by an object | o.p = C(); q = C(); q.k = 7.0 | x * o.p.k | o.p = q
list in an attribute | o.l = [1.0] | x * o.l[0] | o.l[0] = 2.0
method replaced on the class | C.m = lambda self, x: x * 2.0 | o.m(x) | C.m = lambda self, x: x * 3.0
method replaced on the object | C.m = lambda self, x: x * 2.0 | o.m(x) | o.m = lambda x: x * 3.0
method reads a global | k = 2.0; C.m = lambda self, x: x * k | o.m(x) | k = 3.0
property replaced on the class | C.p = property(lambda self: 2.0) | x * o.p | C.p = property(lambda self: 3.0)
property reads | C.p = property(lambda self: self.k) | x * o.p | o.k = 3.0
property reads a global | k = 2.0; C.p = property(lambda self: k) | x * o.p | k = 3.0
cached_property | import functools\nclass D:\n    k = 2.0\n    @functools.cached_property\n    def p(self):\n        return self.k\no = D() | x * o.p | del o.__dict__['p']; D.k = 3.0
class changed | o.k = 2.0\nclass D:\n    m = lambda self, x: x * 3.0\nC.m = lambda self, x: x * 2.0 | o.m(x) | o.__class__ = D
bases changed | \nclass A:\n    def m(self, x): return x * 2.0\nclass B:\n    def m(self, x): return x * 3.0\nclass D(A):\n    pass\no = D() | o.m(x) | D.__bases__ = (B,)
super | \nclass A:\n    def m(self, x): return x * 2.0\nclass B(A):\n    def m(self, x): return super().m(x)\no = B() | o.m(x) | A.m = lambda self, x: x * 3.0
super attribute | \nclass A:\n    k = 2.0\nclass B(A):\n    def m(self, x): return super().k * x\no = B() | o.m(x) | A.k = 3.0
subclass attribute added | \nclass A:\n    k = 2.0\nclass B(A):\n    pass\no = B() | x * o.k | B.k = 3.0
middle class attribute added | \nclass A:\n    k = 2.0\nclass B(A):\n    pass\nclass D(B):\n    pass\no = D() | x * o.k | B.k = 3.0
static method replaced | C.s = staticmethod(lambda x: x * 2.0) | o.s(x) | C.s = staticmethod(lambda x: x * 3.0)
class method reads | C.c = classmethod(lambda cls, x: cls.k * x) | o.c(x) | C.k = 3.0
class method of the class | C.c = classmethod(lambda cls, x: cls.k * x) | C.c(x) | C.k = 3.0
slots | \nclass S:\n    __slots__ = ('k',)\no = S(); o.k = 2.0 | x * o.k | o.k = 3.0
slots and a default | \nclass S:\n    __slots__ = ('k',)\no = S() | x * getattr(o, 'k', 2.0) | o.k = 3.0
slots in a subclass | \nclass S:\n    __slots__ = ('k',)\nclass T(S):\n    __slots__ = ('l',)\no = T(); o.k = 2.0; o.l = 1.0 | x * o.k * o.l | o.l = 3.0
slots hold a list | \nclass S:\n    __slots__ = ('k',)\no = S(); o.k = [2.0] | x * o.k[0] | o.k[0] = 3.0
getattr default | pass | x * getattr(o, 'z', 2.0) | o.z = 3.0
getattr default on the class | pass | x * getattr(o, 'z', 2.0) | C.z = 3.0
getattr computed | o.k1 = 2.0 | x * getattr(o, 'k' + str(1)) | o.k1 = 3.0
getattr computed, absent | n = 1 | x * getattr(o, f'k{n}', 2.0) | o.k1 = 3.0
hasattr | pass | x * (3.0 if hasattr(o, 'z') else 2.0) | o.z = None
hasattr on a class | pass | x * (3.0 if hasattr(C, 'z') else 2.0) | C.z = None
AttributeError caught | \ndef f(x):\n    try:\n        return x * o.z\n    except AttributeError:\n        return x\n | f(x) | o.z = 3.0
vars | o.k = 2.0 | x * vars(o)['k'] | o.k = 3.0
vars summed | o.a = 2.0 | x * sum(vars(o).values()) | o.b = 3.0
__dict__ | o.k = 2.0 | x * o.__dict__['k'] | o.k = 3.0
dir | pass | x * len(dir(o)) | o.zz = 1.0
__getattr__ | \nclass G:\n    def __init__(self):\n        self.d = {'k': 2.0}\n    def __getattr__(self, n):\n        return self.d[n]\no = G() | x * o.k | o.d['k'] = 3.0
__getattribute__ | \nclass G:\n    def __getattribute__(self, n):\n        return k\nk = 2.0; o = G() | x * o.any | k = 3.0
__getattr__ added | \ndef f(x):\n    try:\n        return x * o.z\n    except AttributeError:\n        return x\n | f(x) | C.__getattr__ = lambda self, n: 5.0
__getitem__ | k = 2.0; C.__getitem__ = lambda self, i: k | x * o[0] | k = 3.0
__getitem__ replaced | C.__getitem__ = lambda self, i: 2.0 | x * o[0] | C.__getitem__ = lambda self, i: 3.0
__getitem__ reads self | C.__getitem__ = lambda self, i: self.data[i]; o.data = [2.0] | x * o[0] | o.data[0] = 3.0
__len__ | C.__len__ = lambda self: self.n; o.n = 2 | x * len(o) | o.n = 3
__iter__ | C.__iter__ = lambda self: iter(self.data); o.data = [1.0, 2.0] | sum(x * v for v in o) | o.data = [5.0]
__iter__ generator | \nclass I:\n    def __init__(self):\n        self.data = [1.0, 2.0]\n    def __iter__(self):\n        for v in self.data:\n            yield v\no = I() | sum(x * v for v in o) | o.data.append(3.0)
__next__ | \nclass I:\n    n = 0\n    lim = 2\n    def __iter__(self):\n        self.n = 0\n        return self\n    def __next__(self):\n        if self.n >= self.lim:\n            raise StopIteration\n        self.n += 1\n        return 1.0\no = I() | sum(x * v for v in o) | I.lim = 4
__mul__ | C.__mul__ = lambda self, v: v * self.k | o * x | o.k = 5.0
__rmul__ | C.__rmul__ = lambda self, v: v * self.k | 2.0 * o * x | o.k = 5.0
__add__ replaced | C.__add__ = lambda self, v: v + 1.0 | o + x | C.__add__ = lambda self, v: v + 2.0
__neg__ | C.__neg__ = lambda self: self.k | x * -o | o.k = 5.0
__call__ | C.__call__ = lambda self, x: x * self.k | o(x) | o.k = 5.0
__call__ replaced | C.__call__ = lambda self, x: x * 2.0 | o(x) | C.__call__ = lambda self, x: x * 3.0
__bool__ | C.__bool__ = lambda self: self.on; o.on = True | x * 2.0 if o else x | o.on = False
__bool__ added | pass | x * 2.0 if o else x | C.__bool__ = lambda self: False
__len__ as truth added | pass | x * 2.0 if o else x | C.__len__ = lambda self: 0
__eq__ | C.__eq__ = lambda self, other: self.k == other | x * (2.0 if o == 9.0 else 1.0) | o.k = 9.0
__eq__ added | pass | x * (2.0 if o == 1.0 else 1.0) | C.__eq__ = lambda self, other: True
__lt__ | C.__lt__ = lambda self, other: self.k < other | x * (2.0 if o < 4.0 else 1.0) | o.k = 9.0
__contains__ | C.__contains__ = lambda self, v: v in self.s; o.s = {1} | x * (2.0 if 5 in o else 1.0) | o.s.add(5)
__float__ | C.__float__ = lambda self: self.k | x * float(o) | o.k = 9.0
__index__ | C.__index__ = lambda self: self.n; o.n = 0; d = [1.0, 2.0] | x * d[o] | o.n = 1
__int__ | C.__int__ = lambda self: self.n; o.n = 1 | x * int(o) | o.n = 3
__str__ | C.__str__ = lambda self: self.t; o.t = 'a' | x * len(str(o)) | o.t = 'abc'
__format__ | C.__format__ = lambda self, s: self.t; o.t = 'a' | x * len(f'{o}') | o.t = 'abc'
__hash__ | C.__hash__ = lambda self: self.n; o.n = 1 | x * hash(o) | o.n = 2
__enter__ | \nclass M:\n    k = 2.0\n    def __enter__(self):\n        return self.k\n    def __exit__(self, *e):\n        return None\no = M()\ndef f(x):\n    with o as k:\n        return x * k\n | f(x) | o.k = 3.0
__exit__ | \nclass M:\n    k = 2.0\n    out = None\n    def __enter__(self):\n        return self\n    def __exit__(self, *e):\n        self.out = self.k\no = M()\ndef f(x):\n    with o:\n        pass\n    return x * o.out\n | f(x) | M.k = 3.0
__round__ | C.__round__ = lambda self, n=None: self.k | x * round(o) | o.k = 3.0
__abs__ | C.__abs__ = lambda self: self.k | x * abs(o) | o.k = 3.0
__reversed__ | C.__reversed__ = lambda self: iter(self.d); o.d = [1.0] | x * sum(reversed(o)) | o.d = [4.0]
__missing__ | \nclass D(dict):\n    k = 2.0\n    def __missing__(self, n):\n        return self.k\no = D() | x * o['a'] | D.k = 3.0
__missing__ filled | \nclass D(dict):\n    def __missing__(self, n):\n        return 2.0\no = D() | x * o['a'] | o['a'] = 3.0
__iadd__ | \nclass A:\n    def __init__(self):\n        self.k = 2.0\n    def __add__(self, v):\n        return v * self.k\no = A() | o + x | o.k = 3.0
__init__ of an object made inside | \nclass A:\n    def __init__(self):\n        self.k = K\nK = 2.0 | x * A().k | K = 3.0
__init__ replaced | \nclass A:\n    def __init__(self):\n        self.k = 2.0\ndef init(self):\n    self.k = 3.0 | x * A().k | A.__init__ = init
__new__ | \nclass A:\n    def __new__(cls):\n        o = super().__new__(cls)\n        o.k = K\n        return o\nK = 2.0 | x * A().k | K = 3.0
default factory | import dataclasses; K = 2.0\n@dataclasses.dataclass\nclass A:\n    k: float = dataclasses.field(default_factory=lambda: K)\n | x * A().k | K = 3.0
default factory list | import dataclasses; d = [2.0]\n@dataclasses.dataclass\nclass A:\n    k: list = dataclasses.field(default_factory=lambda: d)\n | x * A().k[0] | d[0] = 3.0
defaultdict factory | import collections; K = 2.0; F = lambda: K | x * collections.defaultdict(F)['a'] | K = 3.0
dataclass default | import dataclasses\n@dataclasses.dataclass\nclass A:\n    k: float = 2.0\no = A() | x * o.k | o.k = 3.0
dataclass default of objects made inside | import dataclasses\n@dataclasses.dataclass\nclass A:\n    k: float = 2.0\n | x * A().k | A.__init__.__defaults__ = (3.0,)
dataclass __post_init__ | import dataclasses; K = 2.0\n@dataclasses.dataclass\nclass A:\n    k: float = 0.0\n    def __post_init__(self):\n        self.k = K\n | x * A().k | K = 3.0
frozen dataclass replaced | import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass A:\n    k: float = 2.0\no = A() | x * o.k | o = dataclasses.replace(o, k=3.0)
frozen dataclass forced | import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass A:\n    k: float = 2.0\no = A() | x * o.k | object.__setattr__(o, 'k', 3.0)
namedtuple replaced | import collections; P = collections.namedtuple('P', 'k'); o = P(2.0) | x * o.k | o = o._replace(k=3.0)
namedtuple of lists | import collections; P = collections.namedtuple('P', 'k'); o = P([2.0]) | x * o.k[0] | o.k[0] = 3.0
enum | import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0\nk = E.A | x * k.value | k = E.B
enum value forced | import enum\nclass E(enum.Enum):\n    A = 2.0\n | x * E.A.value | E.A._value_ = 3.0
descriptor | \nclass D:\n    def __get__(self, o, t):\n        return K\nclass A:\n    k = D()\nK = 2.0; o = A() | x * o.k | K = 3.0
descriptor with a state | \nclass D:\n    def __init__(self):\n        self.v = 2.0\n    def __get__(self, o, t):\n        return self.v\nclass A:\n    k = D()\no = A() | x * o.k | A.__dict__['k'].v = 3.0
descriptor replaced | \nclass D:\n    def __init__(self, v):\n        self.v = v\n    def __get__(self, o, t):\n        return self.v\nclass A:\n    k = D(2.0)\no = A() | x * o.k | A.k = D(3.0)
data descriptor | \nclass D:\n    def __set_name__(self, o, n):\n        self.n = '_' + n\n    def __get__(self, o, t):\n        return getattr(o, self.n, 2.0)\n    def __set__(self, o, v):\n        setattr(o, self.n, v)\nclass A:\n    k = D()\no = A() | x * o.k | o.k = 3.0
metaclass attribute | \nclass M(type):\n    k = 2.0\nclass A(metaclass=M):\n    pass\n | x * A.k | M.k = 3.0
metaclass property | \nclass M(type):\n    @property\n    def k(cls):\n        return cls._k\nclass A(metaclass=M):\n    _k = 2.0\n | x * A.k | A._k = 3.0
metaclass __getattr__ | \nclass M(type):\n    def __getattr__(cls, n):\n        return K\nclass A(metaclass=M):\n    pass\nK = 2.0 | x * A.any | K = 3.0
metaclass __call__ | \nclass M(type):\n    def __call__(cls):\n        return K\nclass A(metaclass=M):\n    pass\nK = 2.0 | x * A() | K = 3.0
metaclass __len__ | \nclass M(type):\n    n = 2\n    def __len__(cls):\n        return cls.n\nclass A(metaclass=M):\n    pass\n | x * len(A) | A.n = 3
__class_getitem__ | \nclass A:\n    def __class_getitem__(cls, n):\n        return K\nK = 2.0 | x * A[0] | K = 3.0
__init_subclass__ registry | \nclass A:\n    all = []\n    def __init_subclass__(cls):\n        A.all.append(cls)\n | x * (1.0 + len(A.all)) | type('B', (A,), {})
__instancecheck__ | \nclass M(type):\n    yes = True\n    def __instancecheck__(cls, o):\n        return cls.yes\nclass A(metaclass=M):\n    pass\n | x * (2.0 if isinstance(1, A) else 1.0) | A.yes = False
isinstance of a registered class | import abc\nclass A(abc.ABC):\n    pass\nclass B:\n    pass\no = B() | x * (2.0 if isinstance(o, A) else 1.0) | A.register(B)
list subclass | \nclass L(list):\n    k = 2.0\no = L([1.0]) | x * o.k * o[0] | o[0] = 3.0
list subclass attribute | \nclass L(list):\n    pass\no = L([1.0]); o.k = 2.0 | x * o.k * o[0] | o.k = 3.0
dict subclass attribute | \nclass D(dict):\n    def get2(self):\n        return self['a'] * self.k\no = D(a=1.0); o.k = 2.0 | x * o.get2() | o.k = 3.0
float subclass attribute | \nclass F(float):\n    pass\no = F(2.0); o.k = 1.0 | x * o.k * o | o.k = 3.0
str subclass attribute | \nclass F(str):\n    pass\no = F('a'); o.k = 1.0 | x * o.k | o.k = 3.0
tuple subclass attribute | \nclass F(tuple):\n    pass\no = F((1.0,)); o.k = 1.0 | x * o.k | o.k = 3.0
int subclass | \nclass I(int):\n    def __mul__(self, v):\n        return v * self.k\no = I(2); o.k = 1.0 | o * x | o.k = 3.0
SimpleNamespace | import types; o = types.SimpleNamespace(k=2.0) | x * o.k | o.k = 3.0
SimpleNamespace compared | import types; o = types.SimpleNamespace(k=2.0); q = types.SimpleNamespace(k=2.0) | x * (2.0 if o == q else 1.0) | q.k = 3.0
thread local | import threading; o = threading.local(); o.k = 2.0 | x * o.k | o.k = 3.0
argparse namespace | import argparse; o = argparse.Namespace(k=2.0) | x * o.k | o.k = 3.0
weak reference | import weakref; r = weakref.ref(o) | x * r().k | o.k = 3.0
weak reference that dies | import weakref; r = weakref.ref(o) | x * (2.0 if r() else 1.0) | del o; import gc; gc.collect()
weak proxy | import weakref; r = weakref.proxy(o) | x * r.k | o.k = 3.0
WeakValueDictionary | import weakref; r = weakref.WeakValueDictionary(a=o) | x * r['a'].k | o.k = 3.0
WeakKeyDictionary | import weakref; r = weakref.WeakKeyDictionary({o: 2.0}) | x * r[o] | r[o] = 3.0
object graph with a cycle | o.me = o; o.k = 2.0 | x * o.me.me.me.k | o.k = 3.0
method bound before | C.m = lambda self, x: x * self.k; m = o.m | m(x) | o.k = 3.0
object in a set | s = {o} | x * sum(v.k for v in s) | o.k = 3.0
object as a key | d = {o: 1.0} | x * sum(v.k for v in d) | o.k = 3.0
objects in a zip | a = [C(), C()] | sum(x * v.k * w for v, w in zip(a, [1.0, 2.0])) | a[1].k = 7.0
objects by enumerate | a = [C(), C()] | sum(x * v.k * i for i, v in enumerate(a)) | a[1].k = 7.0
objects by a method of a class | C.total = lambda self, a: sum(v.k for v in a); a = [C(), C()] | x * o.total(a) | a[1].k = 7.0
exception with a state | e = ValueError(2.0) | x * e.args[0] | e.args = (3.0,)
exception raised inside | K = 2.0\nclass E(Exception):\n    def __init__(self):\n        self.k = K\ndef f(x):\n    try:\n        raise E\n    except E as e:\n        return x * e.k\n | f(x) | K = 3.0
copy.copy of an object | import copy | x * copy.copy(o).k | o.k = 3.0
copy.deepcopy of an object | import copy; o.l = [2.0] | x * copy.deepcopy(o).l[0] | o.l[0] = 3.0
json of a dict | import json; d = {'a': 2.0} | x * json.loads(json.dumps(d))['a'] | d['a'] = 3.0
statistics of a list | import statistics; d = [1.0, 2.0] | x * statistics.mean(d) | d[0] = 5.0
string formatting of a number | d = [1.0] | x * float(f'{d[0]:.3f}') | d[0] = 5.0
abstract property | import abc\nclass A(abc.ABC):\n    @property\n    @abc.abstractmethod\n    def k(self): ...\nclass B(A):\n    @property\n    def k(self):\n        return self.v\no = B(); o.v = 2.0 | x * o.k | o.v = 3.0
contextvar | import contextvars; v = contextvars.ContextVar('v', default=2.0) | x * v.get() | v.set(3.0)
contextvar of a list | import contextvars; d = [2.0]; v = contextvars.ContextVar('v', default=d) | x * v.get()[0] | d[0] = 3.0
contextvar reset | import contextvars; v = contextvars.ContextVar('v', default=2.0); t = v.set(5.0) | x * v.get() | v.reset(t)
contextvar with a default given | import contextvars; v = contextvars.ContextVar('v') | x * v.get(2.0) | v.set(3.0)
os.environ | import os; os.environ['BT_STALE'] = '2' | x * float(os.environ['BT_STALE']) | os.environ['BT_STALE'] = '3'
os.environ get | import os; os.environ.pop('BT_STALE', None) | x * float(os.environ.get('BT_STALE', '2')) | os.environ['BT_STALE'] = '3'
os.getenv | import os; os.environ['BT_STALE'] = '2' | x * float(os.getenv('BT_STALE')) | os.environ['BT_STALE'] = '3'
sys attribute | import sys; sys.bt_stale = 2.0 | x * sys.bt_stale | sys.bt_stale = 3.0
sys.modules | import sys | x * (2.0 if 'bt_stale_missing' in sys.modules else 1.0) | import types; sys.modules['bt_stale_missing'] = types
sys.path | import sys | x * (1.0 if 'bt_stale' in sys.path else 2.0) | sys.path.append('bt_stale')
recursion limit | import sys; n0 = sys.getrecursionlimit() | x * (sys.getrecursionlimit() - n0) | sys.setrecursionlimit(n0 + 5)
decimal context | import decimal; decimal.getcontext().prec = 28 | x * float(decimal.Decimal(1) / decimal.Decimal(3)) | decimal.getcontext().prec = 3
"""

MODULES = r"""
number of a module | m.k = 2.0 | x * m.k | m.k = 3.0
number added to a module | pass | x * getattr(m, 'added', 2.0) | m.added = 3.0
hasattr of a module | pass | x * (2.0 if hasattr(m, 'added2') else 1.0) | m.added2 = 3.0
list of a module | m.d = [2.0] | x * m.d[0] | m.d[0] = 3.0
object of a module | import types; m.o = types.SimpleNamespace(k=2.0) | x * m.o.k | m.o.k = 3.0
function of a module | m.f = lambda x: x * 2.0 | m.f(x) | m.f = lambda x: x * 3.0
function of a module reads its globals | exec('k = 2.0\\ndef f(x):\\n    return x * k', m.__dict__) | m.f(x) | m.k = 3.0
function of a module reads its list | exec('d = [2.0]\\ndef f(x):\\n    return x * d[0]', m.__dict__) | m.f(x) | m.d[0] = 3.0
function of a module calls another | exec('k = 2.0\\ndef g(x):\\n    return x * k\\ndef f(x):\\n    return g(x)', m.__dict__) | m.f(x) | m.k = 3.0
function of a module taken out | exec('k = 2.0\\ndef f(x):\\n    return x * k', m.__dict__); f = m.f | f(x) | m.k = 3.0
class of a module | exec('class A:\\n    k = 2.0', m.__dict__) | x * m.A.k | m.A.k = 3.0
class of a module, object made inside | exec('K = 2.0\\nclass A:\\n    def __init__(self):\\n        self.k = K', m.__dict__) | x * m.A().k | m.K = 3.0
submodule | m.sub = types.ModuleType('bt_stale_m.sub'); m.sub.k = 2.0 | x * m.sub.k | m.sub.k = 3.0
submodule of a submodule | m.sub = types.ModuleType('bt_stale_m.sub'); m.sub.s = types.ModuleType('s'); m.sub.s.k = 2.0 | x * m.sub.s.k | m.sub.s.k = 3.0
submodule replaced | m.sub = types.ModuleType('s'); m.sub.k = 2.0; n = types.ModuleType('s'); n.k = 3.0 | x * m.sub.k | m.sub = n
import inside | m.k = 2.0\ndef f(x):\n    import bt_stale_m\n    return x * bt_stale_m.k\n | f(x) | m.k = 3.0
from import inside | m.k = 2.0\ndef f(x):\n    from bt_stale_m import k\n    return x * k\n | f(x) | m.k = 3.0
from import of a function inside | exec('k = 2.0\\ndef f(x):\\n    return x * k', m.__dict__)\ndef g(x):\n    from bt_stale_m import f\n    return f(x)\n | g(x) | m.k = 3.0
from import as inside | m.k = 2.0\ndef f(x):\n    from bt_stale_m import k as kk\n    return x * kk\n | f(x) | m.k = 3.0
importlib inside | import importlib; m.k = 2.0 | x * importlib.import_module('bt_stale_m').k | m.k = 3.0
sys.modules inside | import sys; m.k = 2.0 | x * sys.modules['bt_stale_m'].k | m.k = 3.0
module replaced in sys.modules | import sys; m.k = 2.0; n = types.ModuleType('bt_stale_m'); n.k = 3.0\ndef f(x):\n    import bt_stale_m\n    return x * bt_stale_m.k\n | f(x) | sys.modules['bt_stale_m'] = n
module __getattr__ | exec('K = 2.0\\ndef __getattr__(n):\\n    return K', m.__dict__) | x * m.anything | m.K = 3.0
module in a list | m.k = 2.0; ms = [m] | x * ms[0].k | m.k = 3.0
module in an object | m.k = 2.0; o = types.SimpleNamespace(m=m) | x * o.m.k | m.k = 3.0
module vars | m.k = 2.0 | x * vars(m)['k'] | m.k = 3.0
module as a namespace of functions | exec('k = 2.0\\nfs = {"a": lambda x: x * k}', m.__dict__) | m.fs['a'](x) | m.k = 3.0
math patched | import math; m.math = math | x * m.k2() | m.k2 = lambda: 3.0 | m.k2 = lambda: 2.0
absent global | \ndef f(x):\n    try:\n        return x * bt_stale_absent\n    except NameError:\n        return x\n | f(x) | f.__globals__['bt_stale_absent'] = 3.0
absent global by in | g = globals() | x * (2.0 if 'bt_stale_absent2' in globals() else 1.0) | g['bt_stale_absent2'] = 3.0
builtin hidden by a global | f = lambda x: x * len([1, 2]) | f(x) | f.__globals__['len'] = lambda a: 5
"""

ARRAYS = r"""
ctypes pointer | \nimport ctypes\nd = ctypes.c_double(2.0); a = ctypes.pointer(d)\n | x * a.contents.value | d.value = 3.0
writeable flag | \na = np.zeros(2)\n | x * (2.0 if a.flags.writeable else 3.0) | a.flags.writeable = False
numpy strides trick | \nb = np.arange(3.0); a = np.lib.stride_tricks.as_strided(b, (2,), (0,))\n | x * float(a[1]) | b[0] = 5.0
numpy subclass attr | \nclass A(np.ndarray): pass\na = np.zeros(1).view(A); a.k = 2.0\n | x * a.k | a.k = 3.0
numpy object nested | \na = np.array([[2.0], None], dtype=object)\n | x * a[0][0] | a[0][0] = 3.0
array item | k = np.array([1.0, 2.0]) | x * k[1] | k[1] = 3.0
array of no dimensions | k = np.array(2.0) | x * float(k) | k[...] = 3.0
array of no dimensions by item | k = np.array(2.0) | x * k.item() | k.fill(3.0)
array of objects | k = np.array([2.0, None], dtype=object) | x * k[0] | k[0] = 3.0
array of lists | k = np.empty(1, dtype=object); k[0] = [2.0] | x * k[0][0] | k[0][0] = 3.0
array of objects of a class | import types; k = np.empty(1, dtype=object); k[0] = types.SimpleNamespace(k=2.0) | x * k[0].k | k[0].k = 3.0
array big-endian | k = np.array([2.0], dtype='>f8') | x * float(k[0]) | k[0] = 3.0
array of int | k = np.array([2]) | x * int(k[0]) | k[0] = 3
array of int64 beyond 2**53 | k = np.array([2**53]) | x * (int(k[0]) - 2**53 + 1) | k[0] += 1
array of bool | k = np.array([True, False]) | x * k.sum() | k[1] = True
array of float16 | k = np.array([2.0], dtype='f2') | x * float(k[0]) | k[0] = 3.0
array of long double | k = np.array([2.0], dtype='g') | x * float(k[0]) | k[0] = 3.0
array of complex | k = np.array([2.0 + 1j]) | x * float(k[0].imag) | k[0] = 3j
array structured | k = np.array([(1.0, 2)], dtype=[('a', 'f8'), ('b', 'i4')]) | x * float(k['b'][0]) | k['b'][0] = 5
array of records | k = np.rec.array([(1.0, 2)], dtype=[('a', 'f8'), ('b', 'i4')]) | x * float(k.a[0]) | k.a[0] = 5.0
array of text | k = np.array(['ab']) | x * len(k[0]) | k[0] = 'a'
array of dates | k = np.array(['2020-01-02'], dtype='M8[D]') | x * float(k[0].astype('i8')) | k[0] = np.datetime64('2020-01-05')
array masked | k = np.ma.array([1.0, 2.0], mask=[False, True]) | x * float(k.sum()) | k[0] = 5.0
array mask changed | k = np.ma.array([1.0, 2.0], mask=[False, True]) | x * float(k.sum()) | k.mask = [False, False]
array view | b = np.array([1.0, 2.0, 3.0]); k = b[::2] | x * k[1] | b[2] = 9.0
array transposed | b = np.arange(6.0).reshape(2, 3); k = b.T | x * k[2, 0] | b[0, 2] = 9.0
array reshaped in place | k = np.arange(4.0) | x * len(k) | k.shape = (2, 2)
array read only | b = np.array([1.0]); k = b.view(); k.flags.writeable = False | x * k[0] | b[0] = 5.0
array subclass attribute | \nclass A(np.ndarray):\n    pass\nk = np.array([1.0]).view(A); k.k = 2.0 | x * k.k | k.k = 3.0
array summed | k = np.ones(100) | x * k.sum() | k[50] = 3.0
array in a list | k = [np.array([1.0])] | x * k[0][0] | k[0][0] = 4.0
array of an object | import types; o = types.SimpleNamespace(w=np.array([1.0])) | x * o.w[0] | o.w += 1.0
array default argument | w = np.array([1.0]); f = lambda x, w=w: x * w[0] | f(x) | w[0] = 2.0
array flat | k = np.ones((2, 2)) | x * float(sum(k.flat)) | k[0, 0] = 3.0
array nditer | k = np.ones(2) | x * sum(float(v) for v in np.nditer(k)) | k[0] = 3.0
array by np.dot | k = np.ones(3) | x * np.dot(k, k) | k[0] = 3.0
array by np.linalg | k = np.ones(3) | x * np.linalg.norm(k) | k[0] = 3.0
array vectorize | k = 2.0; f = np.vectorize(lambda v: v * k) | x * float(f(1.0)) | k = 3.0
numpy scalar replaced | k = np.float64(2.0) | x * k | k = np.float64(3.0)
numpy float32 replaced | k = np.float32(2.0) | x * float(k) | k = np.float32(3.0)
numpy int replaced | k = np.int64(2) | x * int(k) | k = np.int64(3)
numpy bool replaced | k = np.bool_(True) | x * 2.0 if k else x | k = np.bool_(False)
numpy error state | pass | x * (2.0 if np.geterr()['divide'] == 'warn' else 1.0) | np.seterr(divide='ignore')
memmap | import tempfile, os; p = os.path.join(tempfile.mkdtemp(), 'a'); k = np.memmap(p, dtype='f8', mode='w+', shape=(2,)) | x * float(k[0]) | k[0] = 5.0
sparse matrix | import scipy.sparse; k = scipy.sparse.csr_matrix(np.eye(2)) | x * k[0, 0] | k.data[0] = 5.0
sparse array | import scipy.sparse; k = scipy.sparse.csr_array(np.eye(2)) | x * k[0, 0] | k.data[0] = 5.0
sparse coo | import scipy.sparse; k = scipy.sparse.coo_matrix(np.eye(2)) | x * k.sum() | k.data[0] = 5.0
sparse dok | import scipy.sparse; k = scipy.sparse.dok_matrix((2, 2)); k[0, 0] = 1.0 | x * k[0, 0] | k[0, 0] = 5.0
sparse lil | import scipy.sparse; k = scipy.sparse.lil_matrix((2, 2)); k[0, 0] = 1.0 | x * k[0, 0] | k[0, 0] = 5.0
interpolation | import scipy.interpolate; k = scipy.interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 4.0]) | x * float(k(0.5)) | k.c[3, 0] = 5.0
polynomial | k = np.poly1d([1.0, 2.0]) | x * k(1.0) | k[0] = 7.0
poly | k = np.polynomial.Polynomial([1.0, 2.0]) | x * k(1.0) | k.coef[0] = 7.0
"""

# These cannot be right at the next call, or are excluded by design: an error or warning at tracing says so.
OUTSIDE = r"""
numpy flatiter | \nb = np.zeros(2) + 2; a = b.flat\n | x * float(a[0]) | b[0] = 3.0
time | import time | x * time.time() | pass
perf_counter | import time | x * time.perf_counter() | pass
datetime now | import datetime | x * datetime.datetime.now().timestamp() | pass
date today | import datetime | x * datetime.date.today().toordinal() * 0.0 + x * id(object()) * 0.0 | pass
random | import random | x * random.random() | pass
random method | import random; r = random.Random(0) | x * r.random() | pass
random gauss | import random | x * random.gauss(0.0, 1.0) | pass
random choice | import random | x * random.choice([1.0, 2.0, 3.0]) | pass
random seeded object of a class | import random\nclass R(random.Random):\n    pass\nr = R(1) | x * r.uniform(0, 1) | pass
numpy random | pass | x * np.random.rand() | pass
numpy random normal | pass | x * float(np.random.normal()) | pass
numpy generator | r = np.random.default_rng(0) | x * r.random() | pass
numpy generator normal | r = np.random.default_rng(0) | x * r.normal() | pass
numpy RandomState | r = np.random.RandomState(0) | x * r.rand() | pass
secrets | import secrets | x * secrets.randbelow(10**9) | pass
uuid | import uuid | x * float(uuid.uuid4().int % 1000) | pass
os.urandom | import os | x * os.urandom(8)[0] | pass
file | import tempfile, os; p = os.path.join(tempfile.mkdtemp(), 'a'); w = lambda t: open(p, 'w').write(t) and None | x * float(open(p).read()) | w('3.0') | w('2.0')
pathlib | import tempfile, pathlib; p = pathlib.Path(tempfile.mkdtemp()) / 'a'; p.write_text('2.0') | x * float(p.read_text()) | p.write_text('3.0')
numpy file | import tempfile, os; p = os.path.join(tempfile.mkdtemp(), 'a.npy'); np.save(p, np.array([2.0])) | x * float(np.load(p)[0]) | np.save(p, np.array([3.0]))
file exists | import tempfile, os; p = os.path.join(tempfile.mkdtemp(), 'a') | x * (2.0 if os.path.exists(p) else 1.0) | open(p, 'w').close()
listdir | import tempfile, os; p = tempfile.mkdtemp() | x * (1.0 + len(os.listdir(p))) | open(os.path.join(p, 'a'), 'w').close()
open file kept | import tempfile, os; p = os.path.join(tempfile.mkdtemp(), 'a'); open(p, 'w').write('1\\n2\\n3\\n'); k = open(p) | x * float(k.readline()) | pass
iterator kept | k = iter([1.0, 2.0, 3.0, 4.0, 5.0]) | x * next(k) | pass
itertools.count kept | import itertools; k = itertools.count() | x * next(k) | pass
itertools.cycle kept | import itertools; k = itertools.cycle([1.0, 2.0, 3.0]) | x * next(k) | pass
generator kept | k = (float(v) for v in range(10)) | x * next(k) | pass
zip kept | k = zip([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) | x * next(k)[0] | pass
map kept | k = map(float, range(10)) | x * next(k) | pass
StringIO kept | import io; k = io.StringIO('1\\n2\\n3\\n') | x * float(k.readline()) | pass
queue kept | import queue; k = queue.SimpleQueue(); [k.put(float(v)) for v in range(9)] | x * k.get() | pass
counter by an attribute | import types; o = types.SimpleNamespace(n=0.0); f = lambda: setattr(o, 'n', o.n + 1.0) or o.n | x * f() | pass
counter by a cell | \ndef counter():\n    n = 0.0\n    def tick():\n        nonlocal n\n        n += 1.0\n        return n\n    return tick\nf = counter() | x * f() | pass
counter by a list | k = [0.0]; f = lambda: k.append(1.0) or len(k) | x * f() | pass
counter on a class | \nclass A:\n    n = 0\n    @classmethod\n    def tick(cls):\n        cls.n += 1\n        return cls.n\n | x * A.tick() | pass
counter by __call__ | \nclass A:\n    n = 0\n    def __call__(self):\n        self.n += 1\n        return self.n\no = A() | x * o() | pass
counter by __getitem__ | \nclass A:\n    n = 0\n    def __getitem__(self, i):\n        self.n += 1\n        return self.n\no = A() | x * o[0] | pass
recursion limit read in C | import sys, gc; t0 = gc.get_threshold()[0] | x * (1.0 + gc.get_threshold()[0] - t0) | gc.set_threshold(t0 + 7)
working directory | import os, tempfile; d = tempfile.mkdtemp(); d0 = os.getcwd() | x * len(os.getcwd()) | os.chdir(d)
locale | import locale | x * len(str(locale.localeconv())) | pass
object count | import gc | x * len(gc.get_objects()) | k = [[] for _ in range(1000)]
reference count | import sys; o = object() | x * sys.getrefcount(o) | p = [o, o, o]
sqlite | import sqlite3; k = sqlite3.connect(':memory:'); k.execute('create table t (v real)'); k.execute('insert into t values (2.0)') | x * k.execute('select v from t').fetchone()[0] | k.execute('update t set v = 3.0')
StringIO value | import io; k = io.StringIO(); k.write('2.0') | x * float(k.getvalue()) | k.seek(0); k.write('3.0')
StringIO position | import io; k = io.StringIO('2.0') | x * (1.0 + k.tell()) | k.seek(2)
"""

FIELDS = r"""
asdict | o.k = 2.0 | x * dataclasses.asdict(o)['k'] | o.k = 3.0
asdict of a field that nothing names | o.j = 2.0 | x * sum(v for v in dataclasses.asdict(o).values() if v) | o.j = 3.0
asdict of a nested one | o.p = D(); o.p.j = 2.0 | x * dataclasses.asdict(o)['p']['j'] | o.p.j = 3.0
asdict of a list of them | o.p = [D(), D()] | x * dataclasses.asdict(o)['p'][1]['j'] | o.p[1].j = 3.0
asdict of a field of the class | pass | x * dataclasses.asdict(o)['j'] | del o.j; D.j = 3.0
asdict of slots | \n@dataclasses.dataclass(slots=True)\nclass S:\n    j: float = 2.0\no = S() | x * dataclasses.asdict(o)['j'] | o.j = 3.0
astuple | pass | x * sum(v for v in dataclasses.astuple(o) if isinstance(v, float)) | o.j = 3.0
replace | pass | x * dataclasses.replace(o, k=1.0).__getstate__()['j'] | o.j = 3.0
asdict of a static method's object | f = lambda x, a=o: x * dataclasses.asdict(a)['j'] | f(x) | o.j = 3.0
copied, then all fields | import copy | x * sum(v for v in copy.copy(o).__getstate__().values() if isinstance(v, float)) | o.j = 3.0
deepcopy, then by a computed name | import copy; n = ['j'] | x * (lambda c: c.__reduce_ex__(4)[2][n[0]])(copy.deepcopy(o)) | o.j = 3.0
__getstate__ | pass | x * o.__getstate__()['j'] | o.j = 3.0
__reduce_ex__ | pass | x * o.__reduce_ex__(4)[2]['j'] | o.j = 3.0
optparse ensure_value | import optparse; v = optparse.Values({'j': 2.0}) | x * v.ensure_value('j', 1.0) | v.j = 3.0
optparse compared | import optparse; v = optparse.Values({'j': 2.0}) | x * (2.0 if v == {'j': 2.0} else 1.0) | v.j = 3.0
argparse contains | import argparse; v = argparse.Namespace() | x * (2.0 if 'j' in v else 1.0) | v.j = 3.0
argparse compared | import argparse; v, w = argparse.Namespace(j=1.0), argparse.Namespace(j=1.0) | x * (2.0 if v == w else 1.0) | w.j = 3.0
argparse text | import argparse; v = argparse.Namespace(j=2) | x * len(repr(v)) | v.j = 3000
pprint | import pprint | x * len(pprint.pformat(o)) | o.j = 3000000.5
string.Formatter | import string | x * float(string.Formatter().format('{0.j}', o)) | o.j = 3.0
str.format | pass | x * float('{0.j}'.format(o)) | o.j = 3.0
str.format of a name | pass | x * float('{o.j:.3f}'.format(o=o)) | o.j = 3.0
str.format_map | d = {'o': o} | x * float('{o.j}'.format_map(d)) | o.j = 3.0
str.format deeper | o.p = D() | x * float('{0.p.j}'.format(o)) | o.p.j = 3.0
match by keyword | \ndef f(x):\n    match o:\n        case D(j=v):\n            return x * v\n | f(x) | o.j = 3.0
match by position | \ndef f(x):\n    match o:\n        case D(v):\n            return x * v\n | f(x) | o.j = 3.0
getattr by another name | g = getattr | x * g(o, 'j') | o.j = 3.0
getattr in a partial | import functools; g = functools.partial(getattr, o, 'j') | x * g() | o.j = 3.0
getattr in a list | g = [getattr] | x * g[0](o, 'j') | o.j = 3.0
hasattr by another name | g = hasattr | x * (2.0 if g(o, 'z') else 1.0) | o.z = 3.0
vars in a map | g = vars | x * list(map(g, [o]))[0]['j'] | o.j = 3.0
reduce of getattr | import functools; n = ['p', 'j']; o.p = D() | x * functools.reduce(getattr, n, o) | o.p.j = 3.0
WeakSet | import weakref\nclass W: pass\no = W(); s = weakref.WeakSet() | x * (1.0 + len(s)) | s.add(o)
a module of a user named profile | import types; m = types.ModuleType('profile'); m.__file__ = '/home/profile.py'; before = sys.modules.get('profile'); sys.modules['profile'] = m; exec('k = 2.0\\nclass A:\\n    k = 2.0\\ndef f(x):\\n    return x * k * A.k', m.__dict__); f = m.f | f(x) | m.k = 3.0; sys.modules.pop('profile', None)
a class of a module named trace | import types; m = types.ModuleType('trace'); m.__file__ = '/home/trace.py'; sys.modules['trace'] = m; exec('class A:\\n    k = 2.0', m.__dict__); a = m.A() | x * a.k | m.A.k = 3.0; sys.modules.pop('trace', None)
"""

ANSWERS = r"""
thread's name | import threading; t = threading.Thread() | x * len(t.name) | t.name = 'another name'
current thread's name | import threading; n = threading.current_thread().name | x * len(threading.current_thread().name) | threading.current_thread().name = n + 'a'
thread is alive | import threading; t = threading.Thread(target=lambda: None) | x * (2.0 if t.ident else 1.0) | t.start(); t.join()
event is set | import threading; e = threading.Event() | x * (2.0 if e.is_set() else 1.0) | e.set()
event waited for | import threading; e = threading.Event() | x * (2.0 if e.wait(0.0) else 1.0) | e.set()
semaphore taken | import threading; s = threading.Semaphore(1) | x * (2.0 if s.acquire(blocking=False) else 1.0) | pass
number of threads | import threading; e = threading.Event(); t = threading.Thread(target=e.wait, daemon=True) | x * threading.active_count() | t.start()
lock is locked | import threading; l = threading.Lock() | x * (2.0 if l.locked() else 1.0) | l.acquire()
lock taken | import threading; l = threading.Lock() | x * (2.0 if l.acquire(False) else 1.0) | pass
reentrant lock owned | import threading; l = threading.RLock() | x * (2.0 if l._is_owned() else 1.0) | l.acquire()
logger's level | import logging; l = logging.getLogger('bt_stale'); l.setLevel(10) | x * l.getEffectiveLevel() | l.setLevel(30)
logger is enabled | import logging; l = logging.getLogger('bt_stale2'); l.setLevel(10) | x * (2.0 if l.isEnabledFor(20) else 1.0) | l.setLevel(30)
logger's level by its attribute | import logging; l = logging.getLogger('bt_stale3'); l.setLevel(10) | x * logging.getLogger('bt_stale3').level | l.setLevel(30)
level's name | import logging; logging.addLevelName(33, 'A') | x * len(logging.getLevelName(33)) | logging.addLevelName(33, 'ABC')
signature | import inspect\ndef g(a): pass\n | x * len(inspect.signature(g).parameters) | g.__code__ = (lambda a, b: None).__code__
source members | import inspect | x * len(inspect.getmembers(o)) | o.z = 1.0
static attribute | import inspect | x * inspect.getattr_static(o, 'j') | o.j = 3.0
stack | import inspect | x * len(inspect.stack()) | pass
hints | import typing | x * len(typing.get_type_hints(D)) | D.__annotations__['z'] = float
protocol | import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n    def z(self): ...\n | x * (2.0 if isinstance(o, P) else 1.0) | D.z = lambda self: None
line of a file | import linecache; linecache.cache['bt_stale'] = (1, None, ['2.0'], 'bt_stale') | x * float(linecache.getline('bt_stale', 1)) | linecache.cache['bt_stale'] = (1, None, ['3.0'], 'bt_stale')
pickled | import pickle, types; n = types.SimpleNamespace(j='a') | x * len(pickle.dumps(n)) | n.j = 'a long text'
"""

CLASSES = {
    "fields": FIELDS,
    "answers": ANSWERS,
    "names": NAMES,
    "containers": CONTAINERS,
    "functions": FUNCTIONS,
    "objects": OBJECTS,
    "modules": MODULES,
    "arrays": ARRAYS,
    "outside": OUTSIDE,
}

DATA = "import dataclasses, sys\n@dataclasses.dataclass\nclass D:\n    j: float = 2.0\n    k: float = 2.0\n    p: object = None\no = D()"

BEFORE = {
    "fields": DATA,
    "answers": DATA,
    "objects": "class C:\n    k = 2.0\no = C()",
    "modules": "import sys, types\nm = types.ModuleType('bt_stale_m'); sys.modules['bt_stale_m'] = m",
    "arrays": "import numpy as np",
    "outside": "import numpy as np",
}


def lines(source: str) -> str:
    """The source of a row on one line: ``\\n`` ends a line, and two backslashes stand for one."""
    return source.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")


def rows(kind: str) -> list[tuple[str, str, str, str]]:
    """The cases of a class: name, setup, body, change."""
    found = []
    for line in filter(None, CLASSES[kind].split("\n")):
        name, setup, body, change, *more = (part.strip(" ") for part in line.split(" | "))
        setup = "\n".join([BEFORE.get(kind, "pass"), setup, *more])
        found.append((name, lines(setup), lines(body), lines(change)))
    return found


def stored(source: str) -> set[str]:
    """The names assigned by statements at their own level."""
    tree, names = ast.parse(source), set()
    stack = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            stack.extend(ast.iter_child_nodes(node))
    return names


class _Other(ast.NodeTransformer):
    """Floats replaced by others."""

    def __init__(self, k: int) -> None:
        self.k = k

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(node.value + self.k) if type(node.value) is float else node


def repeated(change: str, n: int) -> str:
    """The change after n others of its kind, so that memory of what was there at the trace may be in use again."""
    tries = []
    for k in range(1, n + 1):
        other = ast.unparse(_Other(k).visit(ast.parse(change)))
        tries.append(f"try:\n{textwrap.indent(other, '    ')}\nexcept Exception:\n    pass\n")
    return "".join(tries) + change


_numbers = itertools.count()


def make(setup: str, body: str, change: str, *, nested: bool):
    """The body and the function that makes the change, with names as globals or as closure cells."""
    import burtorch as bt

    module = types.ModuleType(f"stale_case_{next(_numbers)}")
    module.bt = bt
    sys.modules[module.__name__] = module
    shared = sorted(stored(change) & stored(setup))
    kind = "nonlocal" if nested else "global"
    statement = f"{kind} {', '.join(shared)}\n" if shared else ""
    functions = f"def body(x):\n    return {body}\ndef change():\n{textwrap.indent(statement + change, '    ')}\n"
    source = f"{setup}\n{functions}"
    if nested:
        source = f"def build():\n{textwrap.indent(source, '    ')}\n    return body, change\nbody, change = build()"
    exec(compile(source, module.__name__, "exec"), module.__dict__)
    return module.body, module.change
