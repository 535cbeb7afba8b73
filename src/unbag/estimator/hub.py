"""Model folders on the Hugging Face Hub, through its own package (extra ``hub``)."""

import shutil
import tempfile
import types
from pathlib import Path
from typing import Any, Self, cast

from unbag.validation import import_optional

__all__ = ["OnHub"]

_CARD = """\
---
{{ card_data }}
---

A classifier that was trained without labels, by the class shares of bags of rows, with
[unbag](https://github.com/unbag/unbag):

```python
clf = unbag.UnbagClassifier.from_pretrained("{{ repo_id }}")    # pip install "unbag[hub]"
```
"""


class OnHub:
    """Base of the classifier: its model folder goes to the Hub and comes from it."""

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Save the classifier to a repository of the Hugging Face Hub, with a model card.

        Parameters
        ----------
        repo_id : str
            Such as ``"you/census"``; it is made if need be.
        **options
            Of ``huggingface_hub.ModelHubMixin.push_to_hub``: ``private``, ``token``,
            ``commit_message``, ``branch`` and others.

        Returns
        -------
        str
            The address of the commit.
        """
        mixin: Any = import_optional("huggingface_hub", "hub").ModelHubMixin
        clf: Any = self

        def save(_: Any, folder: Path) -> None:
            clf.save(folder)

        kind = types.new_class(
            "ModelFolder",
            (mixin,),
            {
                "library_name": "unbag",
                "tags": ["learning-from-label-proportions"],
                "model_card_template": _CARD,
            },
            lambda names: names.update(_save_pretrained=save),
        )
        card = {"repo_id": repo_id, **options.pop("model_card_kwargs", {})}
        return str(kind().push_to_hub(repo_id, model_card_kwargs=card, **options))

    @classmethod
    def from_pretrained(cls, repo_id: str, *, module: Any = None, **options: Any) -> Self:
        """Load a classifier that :meth:`push_to_hub` wrote.

        Only the files of the model are fetched, and read as strictly as by
        :func:`unbag.load_model`: nothing in the repository is run.

        Parameters
        ----------
        repo_id : str
            Such as ``"you/census"``, or a model folder on this machine.
        module : nn.Module or callable, optional
            As in :func:`unbag.load_model`.
        **options
            Of ``huggingface_hub.snapshot_download``: ``revision``, ``token``, ``cache_dir``,
            ``local_files_only`` and others.
        """
        from unbag.estimator.folder import DESCRIPTION, ENCODING, WEIGHTS
        from unbag.estimator.loading import load_model  # it builds classifiers itself

        if Path(repo_id).is_dir():
            return cast(Self, load_model(repo_id, module))
        names = [DESCRIPTION, WEIGHTS, ENCODING]
        hub = import_optional("huggingface_hub", "hub")
        fetched = Path(hub.snapshot_download(repo_id, allow_patterns=names, **options))
        with tempfile.TemporaryDirectory() as folder:
            for name in names:  # the cache of the Hub holds links, which are refused in a model
                if (fetched / name).exists():
                    shutil.copyfile(fetched / name, Path(folder, name))
            return cast(Self, load_model(folder, module))
