"""An affine map of encrypted vectors, by CKKS (Cheon, Kim, Kim & Song 2017) as Microsoft SEAL and TenSEAL have it.

A vector is cut into blocks of 128 values. One ciphertext holds one block of 64 vectors: value j of vector v lies in
slot 32 j + v mod 32, in the real part for the first 32 vectors and in the imaginary part for the others, which a real
matrix leaves apart. Turning all slots by 32 k then turns the values of every vector by k, so that a block of the
matrix, (128, 128), is applied as the sum over its 128 diagonals of `diagonal * turned ciphertext` (Halevi & Shoup
2014), with baby steps and giant steps: 15 turns of each block that comes in and 7 of each that goes out serve all
diagonals. Multiplications come to p q / 8,192 a vector, whatever the dimensions p and q.

All turns are by one of two steps, again and again, so that two keys for turning are all the other side needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import InputError, OutputError, StitchError, UsageError
from migrate.vectors import Vectors

DEGREE = 8192
PRIMES = (60, 45, 60)
"""Bits of the moduli: 165 of the 218 that leave 128 bits of security at this degree (Albrecht et al. 2018)."""
# The bits of the middle modulus: dividing by it brings a product back to the scale of its factors
SCALE = 2.0**45
BLOCK = 128
GROUP = DEGREE // BLOCK
"""Vectors in one ciphertext."""
LARGEST = 2.0**13
"""What a value of the result may be at most: beyond twice that, it would not fit into the modulus that is left."""

_STEP = DEGREE // 2 // BLOCK
# With 8 giant steps: no other powers of two whose product is 128 take fewer turns
_BABY = 16
_STRIP_BYTES = 1 << 30

SECRET_NAME, TURNS_NAME = "secret.key", "turns.key"

Matrix = NDArray[np.float64]


def blocks_of(dim: int) -> int:
    """Return the number of blocks of a vector of so many dimensions."""
    return -(-dim // BLOCK)


def _galois_element(slots: int) -> int:
    """Return the automorphism X -> X^g that turns the slots to the left by so many."""
    return pow(3, slots, 2 * DEGREE)


class Scheme:
    """The parameters, and what rests on them alone."""

    def __init__(self) -> None:
        try:
            import tenseal.sealapi as seal
        except ImportError as error:
            raise UsageError(
                "translation under encryption needs TenSEAL, which is not installed; run pip install "
                "'lead-migrate[private]'"
            ) from error
        self.seal: Any = seal
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(DEGREE, list(PRIMES)))
        # SEAL itself refuses parameters of less than 128 bits of security
        self.context: Any = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
        self.encoder: Any = seal.CKKSEncoder(self.context)
        self.evaluator: Any = seal.Evaluator(self.context)

    def encode(self, values: NDArray[Any], level: Any, scale: float) -> Any:
        """Values, (4096,), real or complex, as a plaintext."""
        plain = self.seal.Plaintext()
        self.encoder.encode(values.tolist(), level, scale, plain)
        return plain

    def read(self, kind: str, path: Path) -> Any:
        """An object of SEAL, such as a `Ciphertext`, from its file."""
        value = getattr(self.seal, kind)()
        try:
            value.load(self.context, str(path))
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"{path}: this is not a SEAL file with a {kind}, or a part of one ({error}); copy it again"
            ) from error
        return value

    def make_keys(self, folder: Path) -> None:
        """Draw a secret key, and write it and the keys for turning into `folder`."""
        generator = self.seal.KeyGenerator(self.context)
        secret = folder / SECRET_NAME
        # Made before SEAL writes into it, which would let others read it
        secret.touch(mode=0o600)
        _write(generator.secret_key(), secret)
        elements = [_galois_element(_STEP), _galois_element(_BABY * _STEP)]
        _write(generator.create_galois_keys(elements), folder / TURNS_NAME)


def _write(value: Any, path: Path) -> None:
    try:
        value.save(str(path))
    except RuntimeError as error:
        raise OutputError(f"cannot write {path}: {error}; free some space and run the same command again") from error


class Holder:
    """The side with the secret key, which can encrypt and decrypt."""

    def __init__(self, scheme: Scheme, secret: Path) -> None:
        self._scheme = scheme
        key = scheme.read("SecretKey", secret)
        self._encryptor: Any = scheme.seal.Encryptor(scheme.context, key)
        self._decryptor: Any = scheme.seal.Decryptor(scheme.context, key)

    def encrypt(self, vectors: Vectors, paths: Sequence[Path]) -> None:
        """Write the blocks of up to 64 vectors, (m, p), each to its path."""
        rows = np.zeros((GROUP, len(paths) * BLOCK))
        rows[: len(vectors), : vectors.shape[1]] = vectors
        slots = rows[:_STEP] + 1j * rows[_STEP:]
        for block, path in enumerate(paths):
            values = slots[:, block * BLOCK : (block + 1) * BLOCK].T.ravel()
            plain = self._scheme.encode(values, self._scheme.context.first_parms_id(), SCALE)
            # by the secret key: half the bytes of the public one's, as the random half is written as its seed
            _write(self._encryptor.encrypt_symmetric(plain), path)

    def decrypt(self, paths: Sequence[Path], count: int, dim: int) -> Vectors:
        """Return the `count` vectors, (count, dim), whose blocks are in these files."""
        rows = np.empty((GROUP, len(paths) * BLOCK))
        for block, path in enumerate(paths):
            plain = self._scheme.seal.Plaintext()
            self._decryptor.decrypt(self._scheme.read("Ciphertext", path), plain)
            values = np.array(self._scheme.encoder.decode_complex(plain)).reshape(BLOCK, _STEP).T
            columns = slice(block * BLOCK, (block + 1) * BLOCK)
            # Two vectors share a slot, as its real and its imaginary part
            rows[:_STEP, columns] = values.real
            rows[_STEP:, columns] = values.imag
            # With another key what comes out is noise as large as the modulus; asked so that NaN fails too
            if not np.abs(rows[:, columns]).max() <= LARGEST:
                raise InputError(f"{path}: it does not decrypt to a vector: the answer was made with other keys")
        return rows[:count, :dim].astype(np.float32)


class EncryptedMap:
    """`x @ matrix + offset`, (p, q) and (q,), of encrypted vectors, without the secret key.

    `turns` is the file of the keys for turning.
    """

    def __init__(self, scheme: Scheme, matrix: Matrix, offset: Matrix, turns: Path) -> None:
        self._scheme = scheme
        self._in = blocks_of(matrix.shape[0])
        self._out = blocks_of(matrix.shape[1])
        self._matrix = np.zeros((self._in * BLOCK, self._out * BLOCK))
        self._matrix[: matrix.shape[0], : matrix.shape[1]] = matrix
        self._offset = np.zeros(self._out * BLOCK)
        self._offset[: len(offset)] = offset
        self._turns = scheme.read("GaloisKeys", turns)
        # SEAL would fail at the first turn, after the matrix was encoded
        if not all(self._turns.has_key(_galois_element(slots)) for slots in (_STEP, _BABY * _STEP)):
            raise InputError(f"{turns}: the keys for two turns are not in it; encrypt the store again")

    @cached_property
    def strips(self) -> list[range]:
        """The blocks of the result in parts, the encoded matrix for each of which fits into about 1 GiB."""
        # A plaintext has 8,192 numbers of 8 bytes for each of the two moduli below the special one
        diagonal_bytes = 2 * 8 * DEGREE
        most = max(_STRIP_BYTES // (self._in * BLOCK * diagonal_bytes), 1)
        return [range(first, min(first + most, self._out)) for first in range(0, self._out, most)]

    def _encoded(self, block: int) -> list[dict[tuple[int, int], Any]]:
        """Return the diagonals for a block of the result: by giant step, then by block that comes in and baby step."""
        steps: list[dict[tuple[int, int], Any]] = [{} for _ in range(BLOCK // _BABY)]
        level = self._scheme.context.first_parms_id()
        rows = np.arange(BLOCK)
        for source in range(self._in):
            block_matrix = self._matrix[source * BLOCK : (source + 1) * BLOCK, block * BLOCK : (block + 1) * BLOCK]
            for giant, diagonals in enumerate(steps):
                for baby in range(_BABY):
                    diagonal = np.roll(block_matrix[(rows + giant * _BABY + baby) % BLOCK, rows], giant * _BABY)
                    # SEAL refuses what would hide nothing
                    if diagonal.any():
                        values = np.repeat(diagonal, _STEP)
                        diagonals[source, baby] = self._scheme.encode(values, level, SCALE)
        if not any(steps):
            raise StitchError(
                "the stitch maps everything to the same values in some dimensions, which would go out unencrypted; "
                "fit another one, such as --kind ridge"
            )
        return steps

    def apply(self, blocks: range, groups: Iterable[tuple[Sequence[Path], Sequence[Path]]]) -> Iterator[None]:
        """Map groups of vectors, the files of their blocks, to files of these blocks of the result, one at a time.

        This part of the map is held encoded meanwhile.
        """
        encoded = {block: self._encoded(block) for block in blocks}
        for sources, targets in groups:
            turned = [list(self._baby_steps(path)) for path in sources]
            for (block, steps), path in zip(encoded.items(), targets, strict=True):
                total: Any = None
                # As in Horner's scheme: each turn turns all that was added before it, so that 7 serve all giant steps
                for diagonals in reversed(steps):
                    if total is not None:
                        self._scheme.evaluator.rotate_vector_inplace(total, _BABY * _STEP, self._turns)
                    for (source, baby), diagonal in diagonals.items():
                        total = self._added(total, turned[source][baby], diagonal)
                _write(self._finished(total, block), path)
            yield

    def _baby_steps(self, path: Path) -> Iterator[Any]:
        value = self._scheme.read("Ciphertext", path)
        if value.parms_id() != self._scheme.context.first_parms_id() or value.size() != 2 or value.scale != SCALE:
            raise InputError(f"{path}: this is not a ciphertext that `private encrypt` wrote; encrypt again")
        yield value
        for _ in range(_BABY - 1):
            turned = self._scheme.seal.Ciphertext()
            self._scheme.evaluator.rotate_vector(value, _STEP, self._turns, turned)
            value = turned
            yield value

    def _added(self, total: Any, value: Any, diagonal: Any) -> Any:
        product = self._scheme.seal.Ciphertext()
        self._scheme.evaluator.multiply_plain(value, diagonal, product)
        if total is None:
            return product
        self._scheme.evaluator.add_inplace(total, product)
        return total

    def _finished(self, total: Any, block: int) -> Any:
        """At the scale of one factor again, and with the offset."""
        self._scheme.evaluator.rescale_to_next_inplace(total)
        values = np.repeat(self._offset[block * BLOCK : (block + 1) * BLOCK], _STEP) * (1 + 1j)
        self._scheme.evaluator.add_plain_inplace(total, self._scheme.encode(values, total.parms_id(), total.scale))
        return total
