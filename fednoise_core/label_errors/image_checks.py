"""Checks of images without a model: equal images with different labels, and blank images."""

import hashlib
from collections.abc import Iterable

import numpy as np

HASH_BYTES = 16  # of one hash
SENT_BYTES = 2 * HASH_BYTES  # a sample: the hash of the image, and that of the image with its label
LEAST_RANGE = 16  # grey levels between the darkest and the brightest pixel of an image that shows something


def find_contradictions(images: Iterable[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """Find images that equal another image with a different label.

    Only hashes are compared, so sites could do this together without sending images or labels. Images with the same
    hash contradict each other if their hashes of image and label differ.

    Args:
        images: n images or feature vectors.
        labels: Their labels, int64 [n].

    Returns:
        bool [n].
    """
    digests, labels_by_digest = [], dict[bytes, set[bytes]]()
    for image, label in zip(images, labels.tolist(), strict=True):
        content = np.ascontiguousarray(image).tobytes()
        digests.append(hashlib.sha256(content).digest()[:HASH_BYTES])
        labels_by_digest.setdefault(digests[-1], set()).add(
            hashlib.sha256(content + b"%d" % label).digest()[:HASH_BYTES]
        )
    return np.array([len(labels_by_digest[digest]) > 1 for digest in digests], bool)


def find_blank(images: Iterable[np.ndarray]) -> np.ndarray:
    """Find images that show nothing: their pixels differ by fewer than 16 grey levels.

    Args:
        images: n images, uint8. Feature vectors are never blank.

    Returns:
        bool [n].
    """
    return np.array([image.dtype == np.uint8 and np.ptp(image) < LEAST_RANGE for image in images], bool)
