"""Where the datasets come from: addresses, checksums, licences. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SOURCES", "Archive", "Source"]


@dataclass(frozen=True)
class Archive:
    """A tar.gz that holds the files of a dataset.

    Attributes
    ----------
    name : str
        Its name at the address of its source.
    checksum : str
        As in :class:`Source`.
    """

    name: str
    checksum: str


@dataclass(frozen=True)
class Source:
    """One dataset as its authors publish it.

    Attributes
    ----------
    address : str
        Of the upstream folder, with a slash at the end.
    files : mapping of str to str
        What :func:`unbag.datasets.load` reads, below the dataset's folder, and the checksum of
        each: ``sha256:`` or ``md5:`` of the bytes, or ``values:``, the SHA-256 of the numbers in
        a USPS file.
    archive : Archive, optional
        What to download where upstream packs the files into one archive.
    page : str
        A page for people.
    licence : str
    rows : tuple of int
        In training and test part.
    shape : tuple of int
        Of one row.
    """

    address: str
    files: Mapping[str, str]
    page: str
    licence: str
    rows: tuple[int, int]
    shape: tuple[int, ...]
    archive: Archive | None = None


def _idx(train: tuple[str, str], test: tuple[str, str]) -> dict[str, str]:
    """Name the four files of MNIST and its kin; SHA-256 of images and labels of either part."""
    checksums = {"train": train, "t10k": test}
    return {
        f"{part}-{kind}-ubyte.gz": f"sha256:{checksum}"
        for part, pair in checksums.items()
        for kind, checksum in zip(("images-idx3", "labels-idx1"), pair, strict=True)
    }


SOURCES: dict[str, Source] = {
    "pendigits": Source(
        address="https://archive.ics.uci.edu/ml/machine-learning-databases/pendigits/",
        files={
            "pendigits.tra": "sha256:"
            "e2b9eb9f0d0467e2b64a4816a3420edf2b8043447576f4b84337aba44a9f97d3",
            "pendigits.tes": "sha256:"
            "8bd03229c5c5291fefe43e45465dd948d2645bf23328b9d993e0b777666b2015",
        },
        page="archive.ics.uci.edu/dataset/81",
        licence="CC BY 4.0",
        rows=(7494, 3498),
        shape=(16,),
    ),
    "usps": Source(
        address="https://hastie.su.domains/ElemStatLearn/datasets/",
        files={
            # Copies of this file differ in bytes but not in numbers (0.862 or 0.8620, 0 or
            # -0.0000), and the checksum of the one at this address is not known to us: the
            # numbers are checked instead.
            "zip.train.gz": "values:"
            "5064da9c16b8c7840936e7d69f60e3175e733290efe8b1172c8bf39ba2011e66",
            "zip.test.gz": "sha256:"
            "157928669fe902de2c31ac9e0000e13fc6dc67c6fc84c62c5af2500b4e0ebe25",
        },
        page="hastie.su.domains/ElemStatLearn",
        licence="not stated",
        rows=(7291, 2007),
        shape=(16, 16),
    ),
    "mnist": Source(
        # A mirror of the files of yann.lecun.com, which is often closed.
        address="https://ossci-datasets.s3.amazonaws.com/mnist/",
        files=_idx(
            train=(
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            test=(
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        page="yann.lecun.com/exdb/mnist",
        licence="not stated",
        rows=(60_000, 10_000),
        shape=(28, 28),
    ),
    "fashion-mnist": Source(
        address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        files=_idx(
            train=(
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            test=(
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
        page="github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        rows=(60_000, 10_000),
        shape=(28, 28),
    ),
    "kmnist": Source(
        address="http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        files=_idx(
            train=(
                "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
                "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            ),
            test=(
                "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
                "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
            ),
        ),
        page="codh.rois.ac.jp/kmnist",
        licence="CC BY-SA 4.0",
        rows=(60_000, 10_000),
        shape=(28, 28),
    ),
    "cifar10": Source(
        address="https://www.cs.toronto.edu/~kriz/",
        # The MD5 is the one on upstream's page; the files in it are checked by SHA-256.
        archive=Archive("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d13530"),
        files={
            f"cifar-10-batches-bin/{name}.bin": f"sha256:{checksum}"
            for name, checksum in {
                "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            }.items()
        },
        page="www.cs.toronto.edu/~kriz/cifar.html",
        licence="not stated",
        rows=(50_000, 10_000),
        shape=(3, 32, 32),
    ),
}
