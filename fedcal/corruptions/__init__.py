"""Image corruptions by weather, cameras and file formats.

The fifteen of ImageNet-C (Hendrycks and Dietterich 2019), each in five severities, with numpy and
scipy alone and rewritten: same ideas and same constants, not the same bits. The constants are
those of ImageNet-C or, for small images, of CIFAR-10-C; lengths grow with the image. What differs
is documented at each function; `frost` differs most, because the original lays photographs over the
image, and here a fractal is drawn instead.
"""

from fedcal.corruptions._corrupt import CORRUPTIONS, SEVERITIES, TABLES, corrupt

__all__ = ["CORRUPTIONS", "SEVERITIES", "TABLES", "corrupt"]
