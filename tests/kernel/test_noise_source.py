"""Random words: fresh keys, no state to share, errors that come through, and seeds that must be given."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from residua.errors import BudgetError
from residua.noise import RoundedGaussian, SystemSource, simulated, source

FORK = """
import os
from residua.noise import SystemSource
source = SystemSource()
source.words(4)
streams = []
for child in range(2):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, source.words(4).tobytes())
        os._exit(0)
    os.wait()
    streams.append(os.read(read, 32))
streams.append(source.words(4).tobytes())
print(len(set(streams)), {len(stream) for stream in streams})
"""


@pytest.fixture
def keys(monkeypatch):
    """The keys that were taken from the operating system, which here are known beforehand."""
    taken = []

    def urandom(size):
        taken.append(bytes([len(taken)]) * size)
        return taken[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    return taken


def counter_blocks(key, count):
    """AES of the numbers 0, 1, ..., one block at a time."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return b"".join(encryptor.update(number.to_bytes(16)) for number in range(count))


def test_words_are_aes_of_a_counter_under_a_256_bit_key(keys):
    words = SystemSource().words(6)
    assert [len(key) for key in keys] == [32]
    assert words.tobytes() == counter_blocks(keys[0], 3)


def test_every_call_takes_a_new_key(keys):
    first, second = SystemSource().words(2), SystemSource().words(2)
    assert len(keys) == 2
    assert first.tobytes() == counter_blocks(keys[0], 1)
    assert second.tobytes() == counter_blocks(keys[1], 1)


def test_no_key_makes_more_than_its_bytes(keys, monkeypatch):
    monkeypatch.setattr(source, "BYTES_PER_KEY", 32)
    words = SystemSource().words(9)
    assert len(keys) == 3
    expected = counter_blocks(keys[0], 2) + counter_blocks(keys[1], 2) + counter_blocks(keys[2], 1)[:8]
    assert words.tobytes() == expected


def test_a_key_makes_at_most_a_gibibyte():
    assert source.BYTES_PER_KEY <= 2**30


@pytest.mark.parametrize("count", [0, 1, 1000])
@pytest.mark.parametrize("make", [SystemSource, lambda: simulated(seed=3)])
def test_a_source_gives_as_many_words_as_asked(make, count):
    words = make().words(count)
    assert words.dtype == np.uint64
    assert words.shape == (count,)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="platform: no fork")
def test_forked_children_and_their_parent_draw_different_words():
    # In a process of its own: forking one that has threads, as a test run may have, earns a warning.
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert run.stdout.split(maxsplit=1) == ["3", "{32}\n"]


def test_threads_that_share_a_source_draw_different_words():
    shared = SystemSource()
    with ThreadPoolExecutor(8) as pool:
        streams = list(pool.map(shared.words, [100] * 64))
    assert len(set(np.concatenate(streams).tolist())) == 6400


def test_a_system_source_has_no_state():
    assert SystemSource.__slots__ == ()
    assert SystemSource() == SystemSource()


def test_an_entropy_failure_comes_through(monkeypatch):
    def broken(size):
        raise OSError("no entropy")

    monkeypatch.setattr(os, "urandom", broken)
    with pytest.raises(OSError, match="no entropy"):
        RoundedGaussian(1).draw(SystemSource(), 10)


def test_a_seed_determines_its_words_for_ever():
    # Written down so that a simulation can be repeated under any version.
    assert simulated(seed=1).words(2).tolist() == [9441442522235856127, 17532960557476522086]
    assert simulated(seed=2).words(2).tolist() != simulated(seed=1).words(2).tolist()
    whole, pieces = simulated(seed=5), simulated(seed=5)
    assert whole.words(7).tolist() == pieces.words(3).tolist() + pieces.words(4).tolist()


def test_only_seeded_sources_are_marked_simulated():
    assert simulated(seed=0).simulated
    assert not SystemSource().simulated
    assert repr(simulated(seed=4)) == "simulated(seed=4)"


@pytest.mark.parametrize("seed", [-1, 1.0, True, None, "1"])
def test_a_seed_is_an_integer_that_somebody_chose(seed):
    with pytest.raises(BudgetError, match="seed of simulated noise"):
        simulated(seed)


def test_there_is_no_default_seed():
    with pytest.raises(TypeError):
        simulated()
