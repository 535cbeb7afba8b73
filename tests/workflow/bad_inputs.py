"""What can be wrong with files, columns, priors, options and folders, and how it is made.

Every entry starts from the folder of ``small_files`` with a model in it: ``make`` spoils it, and
``command`` must then be refused. ``errors_page.py`` makes ``messages.md`` from this
list, which a page of the site shows.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

FIT = "fit rows.parquet --bag district --priors shares.csv --output new"
TUNE = "tune rows.parquet --bag district --priors shares.csv --output new --trials 1"
INSPECT = "inspect rows.parquet --bag district --priors shares.csv"
PREDICT = "predict model other.parquet --output out.parquet"
EVALUATE = "evaluate model other.parquet"
IMAGES = "fit images.csv --images images --bag district --priors shares.csv --output new"
ARRAYS = "fit rows.npz --priors shares.csv --output new"
CSV = FIT.replace(".parquet", ".csv")
CONFIG = f"{FIT} --config c.toml"

Maker = Callable[[Path], None]


@dataclass(frozen=True)
class BadInput:
    """What is wrong, the command that meets it, and how the folder gets it."""

    topic: str
    wrong: str
    command: str
    make: Maker = lambda _: None


def text(name: str, content: str | bytes) -> Maker:
    """Write a file."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: _write(folder / name, data)


def priors(*lines: str) -> Maker:
    """Write other class shares."""
    return text("shares.csv", "\n".join(lines) + "\n")


def shares(**changed: str) -> Maker:
    """Write the class shares with those of some bags changed."""
    bags = {"north": "0.8,0.2", "south": "0.3,0.7", "west": "0.5,0.5"} | changed
    return priors("district,yes,no", *(f"{bag},{values}" for bag, values in bags.items()))


def column(name: str, values: Callable[[pa.Table], object], file: str = "rows.parquet") -> Maker:
    """Replace or add a column of the rows."""

    def make(folder: Path) -> None:
        table = pa.parquet.read_table(folder / file)
        array = pa.array(values(table))
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, array)
        else:
            table = table.append_column(name, array)
        pa.parquet.write_table(table, folder / file)

    return make


def keep(*names: str, file: str = "rows.parquet") -> Maker:
    """Keep only some columns of the rows."""

    def make(folder: Path) -> None:
        pa.parquet.write_table(pa.parquet.read_table(folder / file).select(names), folder / file)

    return make


def described(**changes: object) -> Maker:
    """Change the description of the model."""

    def make(folder: Path) -> None:
        path = folder / "model" / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return make


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(data)


def _truncate(name: str, share: float) -> Maker:
    def make(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(share * len(data))])

    return make


def _damage(name: str, share: float) -> Maker:
    """Change bytes of a file, after this share of it."""

    def make(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        start = int(share * len(data))
        data[start : start + 40] = b"\xff" * 40
        (folder / name).write_bytes(bytes(data))

    return make


def _npz(**arrays: object) -> Maker:
    return lambda folder: np.savez(folder / "rows.npz", **arrays)


def _without_encoding(folder: Path) -> None:
    from unbag import load_model

    clf = load_model(folder / "model")
    clf.encoding_ = None
    del clf.feature_names_in_  # those of columns, of which it knows nothing now
    clf.save(folder / "plain")


def _one_bag_only(folder: Path) -> None:
    table = pa.parquet.read_table(folder / "other.parquet")
    north = pa.compute.equal(table["district"], "north")
    pa.parquet.write_table(table.filter(north), folder / "other.parquet")


def _rename_in_images(old: str, new: str) -> Maker:
    def make(folder: Path) -> None:
        path = folder / "images.csv"
        path.write_text(path.read_text().replace(old, new))

    return make


def _other_size(folder: Path) -> None:
    from PIL import Image

    Image.new("L", (5, 7)).save(folder / "images" / "001.png")


def _second_file(**changes: object) -> Maker:
    def make(folder: Path) -> None:
        (folder / "parts").mkdir()
        table = pa.parquet.read_table(folder / "rows.parquet")
        pa.parquet.write_table(table, folder / "parts" / "a.parquet")
        for name, values in changes.items():
            position = table.column_names.index(name)
            table = table.remove_column(position)
            if values is not None:
                table = table.append_column(name, pa.array([values] * len(table)))
        pa.parquet.write_table(table, folder / "parts" / "b.parquet")

    return make


SAME = ("district,yes,no", "north,0.5,0.5", "south,0.5,0.5", "west,0.5,0.5")
TWICE = '"age","age","district"\n1,2,north\n2,1,south\n'
UNKNOWN_BAGS = ("district,yes,no", "north,0.8,0.2", "south,0.3,0.7", "east,0.5,0.5")

BAD_INPUTS = [
    # ------------------------------------------------------------------------------- files of rows
    BadInput("rows", "no such file", FIT.replace("rows.p", "nowhere.p")),
    BadInput("rows", "an empty file", FIT, text("rows.parquet", "")),
    BadInput("rows", "a folder without tables", FIT.replace("rows.parquet", "images")),
    BadInput(
        "rows",
        "a file of another kind",
        FIT.replace("rows.parquet", "a.ods"),
        text("a.ods", "PK"),
    ),
    BadInput("rows", "a name without suffix", FIT.replace("rows.parquet", "a"), text("a", "1")),
    BadInput("rows", "text called Parquet", FIT, text("rows.parquet", "age,district\n1,north\n")),
    BadInput("rows", "a truncated Parquet file", FIT, _truncate("rows.parquet", 0.7)),
    BadInput("rows", "a damaged Parquet file", FIT, _damage("rows.parquet", 0.3)),
    BadInput(
        "rows",
        "a Parquet file without rows",
        FIT,
        lambda f: pa.parquet.write_table(
            pa.table({"age": pa.array([], pa.int64()), "district": pa.array([], pa.string())}),
            f / "rows.parquet",
        ),
    ),
    BadInput("rows", "a CSV file with column names only", CSV, text("rows.csv", "age,district\n")),
    BadInput("rows", "a CSV file with a column twice", CSV, text("rows.csv", TWICE)),
    BadInput(
        "rows",
        "a CSV file in another encoding than UTF-8",
        CSV,
        text("rows.csv", "age,district\n1,J\xe4rvi\n".encode("latin-1")),
    ),
    BadInput(
        "rows",
        "a CSV file with a value too many in a row",
        CSV,
        text("rows.csv", "age,district\n1,north\n2,south,3\n"),
    ),
    BadInput(
        "rows",
        "a Parquet and a CSV file together",
        FIT.replace("rows.parquet", "rows.parquet rows.csv"),
    ),
    BadInput(
        "rows", "the same file twice", FIT.replace("rows.parquet", "rows.parquet rows.parquet")
    ),
    BadInput(
        "rows",
        "files of different columns",
        FIT.replace("rows.parquet", "parts"),
        _second_file(age=None),
    ),
    BadInput(
        "rows",
        "files of different types",
        FIT.replace("rows.parquet", "parts"),
        _second_file(age="old"),
    ),
    BadInput("rows", "no rows named at all", "fit --bag district --priors shares.csv --output new"),
    # ------------------------------------------------------------------------------------- columns
    BadInput("columns", "no --bag", FIT.replace("--bag district", "")),
    BadInput(
        "columns", "a bag column that is not there", FIT.replace("--bag district", "--bag District")
    ),
    BadInput(
        "columns",
        "rows without a bag id",
        FIT,
        column("district", lambda t: ["north", None] * (len(t) // 2)),
    ),
    BadInput(
        "columns", "bag ids that are lists", FIT, column("district", lambda t: [["north"]] * len(t))
    ),
    BadInput(
        "columns",
        "bag ids that are fractions",
        FIT,
        column("district", lambda t: [0.5, 1.5] * (len(t) // 2)),
    ),
    BadInput("columns", "text columns only, like ids", FIT, keep("district", "id")),
    BadInput("columns", "the bag column alone", FIT, keep("district")),
    BadInput(
        "columns", "infinite values", FIT, column("age", lambda t: [np.inf] + [1.0] * (len(t) - 1))
    ),
    BadInput(
        "columns",
        "numbers whose squares overflow",
        FIT,
        column("age", lambda t: [1e300, -1e300] * (len(t) // 2)),
    ),
    BadInput("columns", "a column asked for that is like an id", f"{FIT} --columns id"),
    BadInput(
        "columns",
        "a column asked for that holds lists",
        f"{FIT} --columns tags",
        column("tags", lambda t: [[1, 2]] * len(t)),
    ),
    BadInput("columns", "an unknown column in --columns", f"{FIT} --columns agee"),
    BadInput("columns", "an unknown column in --leave-out", f"{FIT} --leave-out agee"),
    BadInput("columns", "the bag column in --columns", f"{FIT} --columns district"),
    BadInput(
        "columns",
        "a column both in --columns and --leave-out",
        f"{FIT} --columns age --leave-out age",
    ),
    BadInput("columns", "a column twice in --columns", f"{FIT} --columns age --columns age"),
    BadInput(
        "columns",
        "all columns left out",
        FIT + "".join(f" --leave-out {c}" for c in ("age", "income", "city", "member", "id")),
    ),
    # -------------------------------------------------------------------------------------- priors
    BadInput("class shares", "no --priors", FIT.replace("--priors shares.csv", "")),
    BadInput("class shares", "no such file", FIT.replace("shares.csv", "share.csv")),
    BadInput("class shares", "an empty file", FIT, text("shares.csv", "")),
    BadInput("class shares", "column names only", FIT, priors("district,yes,no")),
    BadInput(
        "class shares",
        "a file of another kind",
        FIT.replace("shares.csv", "shares.ods"),
        text("shares.ods", "PK"),
    ),
    BadInput(
        "class shares",
        "text called Parquet",
        FIT.replace("shares.csv", "shares.parquet"),
        text("shares.parquet", "district,yes,no\n"),
    ),
    BadInput("class shares", "a negative share", FIT, shares(north="1.2,-0.2")),
    BadInput("class shares", "shares that do not sum to 1", FIT, shares(north="0.8,0.4")),
    BadInput("class shares", "percent in one row and shares in others", FIT, shares(north="80,20")),
    BadInput(
        "class shares",
        "counts of 0 in a whole row",
        FIT,
        shares(north="8,2", south="0,0", west="5,5"),
    ),
    BadInput(
        "class shares",
        "a bag twice",
        FIT,
        priors(
            "district,yes,no", "north,0.8,0.2", "north,0.8,0.2", "south,0.3,0.7", "west,0.5,0.5"
        ),
    ),
    BadInput(
        "class shares",
        "a class twice",
        FIT,
        priors("district,yes,yes", "north,0.8,0.2", "south,0.3,0.7", "west,0.5,0.5"),
    ),
    BadInput(
        "class shares",
        "one class only",
        FIT,
        priors("district,yes", "north,1", "south,1", "west,1"),
    ),
    BadInput(
        "class shares",
        "a column of totals",
        FIT,
        priors("district,yes,no,total", "north,80,20,100", "south,30,70,100", "west,50,50,100"),
    ),
    BadInput("class shares", "a cell that is no number", FIT, shares(south="most,0.7")),
    BadInput("class shares", "an empty cell", FIT, shares(north="0.8,")),
    BadInput(
        "class shares",
        "a row without a bag id",
        FIT,
        priors("district,yes,no", "north,0.8,0.2", ",0.3,0.7", "west,0.5,0.5"),
    ),
    BadInput(
        "class shares",
        "a pair twice in the long form",
        FIT,
        priors(
            "district,class,share",
            "north,yes,0.8",
            "north,no,0.2",
            "north,no,0.2",
            "south,yes,1",
            "west,yes,1",
        ),
    ),
    BadInput(
        "class shares",
        "bags of rows without shares, and the other way round",
        FIT,
        priors(*UNKNOWN_BAGS),
    ),
    BadInput(
        "class shares",
        'bag ids "1" in the rows and 1 in the priors',
        FIT,
        lambda f: (
            column("district", lambda t: ["1", "2"] * (len(t) // 2))(f),
            priors("district,yes,no", "1,0.8,0.2", "2,0.3,0.7")(f),
        ),
    ),
    BadInput("class shares", "shares that cannot tell the classes apart", FIT, priors(*SAME)),
    BadInput(
        "class shares",
        "one bag only",
        FIT,
        lambda f: (
            column("district", lambda t: ["north"] * len(t))(f),
            priors("district,yes,no", "north,0.8,0.2")(f),
        ),
    ),
    # ------------------------------------------------------------------------------------- options
    BadInput("options", "an unknown command", "train rows.parquet"),
    BadInput("options", "an unknown option", f"{FIT} --epoch 3"),
    BadInput("options", "an unknown method", f"{FIT} --method u-pr"),
    BadInput("options", "an unknown network", f"{FIT} --model cnn"),
    BadInput("options", "a network of images for a table", f"{FIT} --model resnet20"),
    BadInput("options", "alpha out of range", f"{FIT} --method u-prr --set alpha=1.5"),
    BadInput("options", "an ascent scale below 0", f"{FIT} --method u-prr --set ascent_scale=-1"),
    BadInput("options", "a setting of another method", f"{FIT} --method prop --set alpha=0.5"),
    BadInput("options", "a setting without its method", f"{FIT} --set alpha=0.5"),
    BadInput("options", "a setting without a value", f"{FIT} --method u-prr --set alpha"),
    BadInput("options", "a setting twice", f"{FIT} --method u-prr --set alpha=1 --set alpha=0"),
    BadInput("options", "a setting that is no number", f"{FIT} --method u-prr --set alpha=half"),
    BadInput("options", "an option that became a setting", f"{FIT} --method u-prr --alpha 0.5"),
    BadInput("options", "no epochs", f"{FIT} --epochs 0"),
    BadInput("options", "epochs that are no number", f"{FIT} --epochs many"),
    BadInput("options", "no rows in a batch", f"{FIT} --batch-size 0"),
    BadInput("options", "a learning rate of 0", f"{FIT} --learning-rate 0"),
    BadInput("options", "a learning rate that is not a number", f"{FIT} --learning-rate nan"),
    BadInput("options", "a negative weight decay", f"{FIT} --weight-decay -1"),
    BadInput("options", "a network without layers", f"{FIT} --depth 0"),
    BadInput("options", "a network without units", f"{FIT} --width 0"),
    BadInput("options", "dropout of everything", f"{FIT} --dropout 1"),
    BadInput("options", "a negative seed", f"{FIT} --seed -1"),
    BadInput("options", "a seed of 2**64", f"{FIT} --seed {2**64}"),
    BadInput("options", "a seed of 2**64 for tune", f"{TUNE} --seed {2**64}"),
    BadInput("options", "epochs of 2**64", f"{FIT} --epochs {2**64}"),
    BadInput("options", "trials of 2**64", TUNE.replace("--trials 1", f"--trials {2**64}")),
    BadInput(
        "options",
        "shares that leave no rows to train on",
        f"{FIT} --evaluation-share 0.6 --validation-share 0.4",
    ),
    BadInput("options", "a share in percent", f"{FIT} --evaluation-share 20"),
    BadInput(
        "options",
        "early stopping without rows to watch",
        f"{FIT} --early-stopping --validation-share 0",
    ),
    BadInput(
        "options", "calibration without rows for it", f"{FIT} --calibrate --validation-share 0"
    ),
    BadInput(
        "options", "an early stop after no epochs", f"{FIT} --early-stopping --n-iter-no-change 0"
    ),
    BadInput("options", "an unknown device", f"{FIT} --device gpu"),
    BadInput("options", "a device that is not there", f"{FIT} --device cuda:99"),
    BadInput("options", "an unknown precision", f"{FIT} --precision half"),
    BadInput("options", "a level in percent", f"{FIT} --level 95"),
    BadInput("options", "shares of something unknown", f"{INSPECT} --shares-of census"),
    BadInput("options", "a test prior without shares", f"{FIT} --test-prior yes,no"),
    BadInput("options", "a test prior that is no number", f"{FIT} --test-prior yes=half,no=half"),
    BadInput("options", "a test prior of other classes", f"{FIT} --test-prior yes=0.3,maybe=0.7"),
    BadInput(
        "options", "a test prior that does not sum to 1", f"{FIT} --test-prior yes=0.3,no=0.3"
    ),
    BadInput("options", "a test prior with a class twice", f"{FIT} --test-prior yes=0.3,yes=0.7"),
    BadInput("options", "no trials", TUNE.replace("--trials 1", "--trials 0")),
    BadInput("options", "an unknown scoring", f"{TUNE} --scoring error"),
    BadInput("options", "a storage that holds something else", f"{TUNE} --storage shares.csv"),
    BadInput(
        "options",
        "a storage that cannot be reached",
        f"{TUNE} --storage sqlite:///no/such/folder/t.db",
    ),
    BadInput("options", "no models at once", f"{TUNE} --at-once 0"),
    BadInput("options", "no rows to rank trials by", f"{TUNE} --validation-share 0"),
    # -------------------------------------------------------------------------------------- output
    BadInput("output", "a model is there", FIT.replace("--output new", "--output model")),
    BadInput("output", "a file is there", FIT.replace("--output new", "--output shares.csv")),
    BadInput(
        "output",
        "a folder with other files is there",
        FIT.replace("--output new", "--output images"),
    ),
    BadInput(
        "output", "a folder below a file", FIT.replace("--output new", "--output shares.csv/new")
    ),
    BadInput(
        "output",
        "a new folder below a new folder, and a bad option",
        FIT.replace("--output new", "--output a/b/new --epochs 0"),
    ),
    # --------------------------------------------------------------------------------------- model
    BadInput("model", "no such folder", PREDICT.replace("model", "nomodel")),
    BadInput("model", "a file", PREDICT.replace("model", "shares.csv")),
    BadInput("model", "a folder that is no model", PREDICT.replace("model", "images")),
    BadInput(
        "model", "weights that were changed", PREDICT, _damage("model/model.safetensors", 0.9)
    ),
    BadInput(
        "model", "weights that are truncated", PREDICT, _truncate("model/model.safetensors", 0.5)
    ),
    BadInput(
        "model",
        "a description that was changed",
        PREDICT,
        described(classes={"kind": "str", "values": ["yes", "maybe"]}, n_iter=-1),
    ),
    BadInput("model", "a description that is no JSON", PREDICT, text("model/model.json", "{")),
    BadInput("model", "a newer format", PREDICT, described(format_version=99)),
    BadInput("model", "a folder of another program", PREDICT, described(format="other")),
    BadInput(
        "model", "an encoding that was changed", PREDICT, _truncate("model/encoding.json", 0.9)
    ),
    BadInput(
        "model",
        "an encoding that is missing",
        PREDICT,
        lambda f: (f / "model" / "encoding.json").unlink(),
    ),
    BadInput(
        "model",
        "predict with a model that was not trained from files",
        PREDICT.replace("model", "plain"),
        _without_encoding,
    ),
    BadInput(
        "model",
        "evaluate with a model that was not trained from files",
        EVALUATE.replace("model", "plain") + " --bag district",
        _without_encoding,
    ),
    # ------------------------------------------------------------------------------------- predict
    BadInput(
        "predict", "rows that lack a column", PREDICT, keep("age", "city", file="other.parquet")
    ),
    BadInput(
        "predict",
        "a column of another type",
        PREDICT,
        column("age", lambda t: ["old"] * len(t), "other.parquet"),
    ),
    BadInput(
        "predict",
        "infinite values",
        PREDICT,
        column("age", lambda t: [np.inf] * len(t), "other.parquet"),
    ),
    BadInput(
        "predict",
        "rows of another kind than in training",
        PREDICT.replace("other.parquet", "rows.npz"),
    ),
    BadInput("predict", "an output of another kind", PREDICT.replace("out.parquet", "out.xlsx")),
    BadInput(
        "predict",
        "an output folder with files in it",
        PREDICT.replace("out.parquet", "images"),
    ),
    BadInput(
        "predict",
        "partitions of one file",
        f"{PREDICT} --partition-by class",
    ),
    BadInput(
        "predict",
        "partitions by a column that is not in the output",
        f"{PREDICT.replace('out.parquet', 'out')} --partition-by district",
    ),
    BadInput("predict", "an output that is there", PREDICT.replace("out.parquet", "rows.parquet")),
    BadInput(
        "predict",
        "an output that is the input",
        "predict model other.parquet --output other.parquet --overwrite",
    ),
    BadInput(
        "predict",
        "an output that is a folder",
        PREDICT.replace("out.parquet", "out.csv"),
        lambda f: (f / "out.csv").mkdir(),
    ),
    BadInput("predict", "an unknown key", f"{PREDICT} --key ID"),
    BadInput(
        "predict",
        "a key that is named as a column of the output",
        f"{PREDICT} --key class",
        column("class", lambda t: list(range(len(t))), "other.parquet"),
    ),
    BadInput("predict", "a key twice", f"{PREDICT} --key id --key id"),
    BadInput(
        "predict",
        "a key of lists in a CSV file",
        "predict model other.parquet --output out.csv --key tags",
        column("tags", lambda t: [[1]] * len(t), "other.parquet"),
    ),
    BadInput(
        "predict",
        "a key with arrays",
        "predict arrays rows.npz --output out.csv --key id",
        lambda f: _train_arrays(f),
    ),
    BadInput("predict", "a prior of other classes", f"{PREDICT} --prior yes=0.5,maybe=0.5"),
    BadInput("predict", "a prior that does not sum to 1", f"{PREDICT} --prior yes=0.5,no=0.1"),
    BadInput("predict", "a prior without shares", f"{PREDICT} --prior yes"),
    BadInput("predict", "an unknown device", f"{PREDICT} --device tpu9"),
    # ------------------------------------------------------------------------------------ evaluate
    BadInput(
        "evaluate",
        "rows without the bag column",
        EVALUATE,
        keep("age", "income", "city", "member", file="other.parquet"),
    ),
    BadInput("evaluate", "an unknown bag column", f"{EVALUATE} --bag county"),
    BadInput(
        "evaluate",
        "bags that have no shares",
        EVALUATE,
        column("district", lambda t: ["east"] * len(t), "other.parquet"),
    ),
    BadInput(
        "evaluate",
        "shares of other classes",
        f"{EVALUATE} --priors new.csv",
        text("new.csv", "district,yes,maybe\nnorth,0.8,0.2\nsouth,0.3,0.7\nwest,0.5,0.5\n"),
    ),
    BadInput("evaluate", "rows of one bag", EVALUATE, _one_bag_only),
    BadInput(
        "evaluate",
        "shares that cannot tell the classes apart",
        f"{EVALUATE} --priors new.csv",
        text("new.csv", "\n".join(SAME)),
    ),
    BadInput("evaluate", "a report of another kind", f"{EVALUATE} --report page.pdf"),
    BadInput(
        "evaluate",
        "a report that is there",
        f"{EVALUATE} --report page.html",
        text("page.html", "mine"),
    ),
    BadInput(
        "evaluate",
        "a JSON file where that of the report would be",
        f"{EVALUATE} --report page.html",
        text("page.json", "mine"),
    ),
    BadInput("evaluate", "a level of 1", f"{EVALUATE} --level 1"),
    # -------------------------------------------------------------------------------------- export
    BadInput("export", "a name that does not end in .onnx", "export model --output model.bin"),
    BadInput(
        "export",
        "an output that is there",
        "export model --output model.onnx",
        text("model.onnx", "mine"),
    ),
    BadInput("export", "no such model", "export nomodel --output model.onnx"),
    BadInput("export", "no --output", "export model"),
    # --------------------------------------------------------------------------------- config file
    BadInput("config", "no such file", f"{FIT} --config no.toml"),
    BadInput("config", "a folder", f"{FIT} --config images"),
    BadInput("config", "not TOML", CONFIG, text("c.toml", "epochs: 3\n")),
    BadInput("config", "not UTF-8", CONFIG, text("c.toml", b'title = "\xff"\n')),
    BadInput("config", "an unknown option", CONFIG, text("c.toml", "epoch = 3\n")),
    BadInput("config", "an option of another command", CONFIG, text("c.toml", "trials = 3\n")),
    BadInput("config", "a fraction for a whole number", CONFIG, text("c.toml", "epochs = 2.5\n")),
    BadInput("config", "true for a number", CONFIG, text("c.toml", "epochs = true\n")),
    BadInput("config", "a whole number of 2**64", CONFIG, text("c.toml", f"epochs = {2**64}\n")),
    BadInput(
        "config", "a number of 5,000 digits", CONFIG, text("c.toml", "epochs = " + 5000 * "1")
    ),
    BadInput("config", "text for a number", CONFIG, text("c.toml", 'dropout = "0.5"\n')),
    BadInput("config", "settings of a method as text", CONFIG, text("c.toml", 'set = "alpha"\n')),
    BadInput(
        "config",
        "a setting that the method does not have",
        CONFIG,
        text("c.toml", 'method = "prop"\nset = {rounds = 2}\n'),
    ),
    BadInput("config", "text for a list", CONFIG, text("c.toml", 'columns = "age"\n')),
    BadInput("config", "a number for true or false", CONFIG, text("c.toml", "calibrate = 1\n")),
    BadInput("config", "a number for text", CONFIG, text("c.toml", "title = 5\n")),
    BadInput(
        "config",
        "the table of another command only",
        CONFIG,
        text("c.toml", "[predict]\ndevice = 'cpu'\n"),
    ),
    BadInput(
        "config",
        "options both above and in a table",
        CONFIG,
        text("c.toml", "seed = 3\n[fit]\nepochs = 2\n"),
    ),
    BadInput("config", "a value out of range", CONFIG, text("c.toml", "seed = -3\n")),
    BadInput(
        "config", "lists nested too deeply", CONFIG, text("c.toml", "title = " + "[" * 100_000)
    ),
    # ---------------------------------------------------------------------------- images and arrays
    BadInput(
        "images and arrays",
        "a folder of images that is not there",
        IMAGES.replace("--images images", "--images pictures"),
    ),
    BadInput(
        "images and arrays",
        "an image that is not there",
        IMAGES,
        _rename_in_images("003.png", "999.png"),
    ),
    BadInput(
        "images and arrays",
        "a path that leads out of the folder",
        IMAGES,
        _rename_in_images("003.png", "../shares.csv"),
    ),
    BadInput(
        "images and arrays", "a file that is no image", IMAGES, text("images/003.png", "no image")
    ),
    BadInput("images and arrays", "images of different sizes", IMAGES, _other_size),
    BadInput(
        "images and arrays",
        "a table without the column file",
        IMAGES,
        _rename_in_images('"file"', '"path"'),
    ),
    BadInput("images and arrays", "--columns with images", f"{IMAGES} --columns file"),
    BadInput(
        "images and arrays",
        "images for a model of tables",
        f"{PREDICT} --images images".replace("other.parquet", "images.csv"),
    ),
    BadInput(
        "images and arrays",
        "no .npz archive",
        FIT.replace("rows.parquet", "rows.npz"),
        text("rows.npz", "PK"),
    ),
    BadInput("images and arrays", "an archive without X", ARRAYS, _npz(rows=np.zeros((3, 2)))),
    BadInput("images and arrays", "an archive without bag ids", ARRAYS, _npz(X=np.zeros((3, 2)))),
    BadInput(
        "images and arrays",
        "missing values in an archive",
        ARRAYS,
        _npz(X=np.array([[1.0], [np.nan]]), bag_ids=["north", "south"]),
    ),
    BadInput(
        "images and arrays",
        "Python objects in an archive",
        ARRAYS,
        _npz(X=np.array([["a"], [1]], dtype=object), bag_ids=["north", "south"]),
    ),
    BadInput(
        "images and arrays",
        "two archives",
        ARRAYS.replace("rows.npz", "rows.npz rows2.npz"),
        lambda f: shutil.copy(f / "rows.npz", f / "rows2.npz"),
    ),
]


def _train_arrays(folder: Path) -> None:
    from small_files import train

    train(folder, "arrays", rows=folder / "rows.npz", bag=None)
