"""The tokenizer of examples: tokenizer.json through the package tokenizers, chat templates through transformers."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from strategist.errors import FileError, InputError

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"
INSTALL_COMMAND = "pip install 'torch-strategist[hf]'"
Message = dict[str, str]


class Tokenizer:
    """Text to token ids; ``end`` is the id of the token that ends a text, None if the folder names none."""

    def __init__(self, path: str) -> None:
        """Raises InputError or FileError if there is no tokenizer, or the package is missing."""
        folder = Path(path).expanduser()
        self.file = folder / FILE if folder.is_dir() else folder
        if not self.file.is_file():
            raise InputError(f"--tokenizer {path}", f"holds no {FILE}", "give such a file, or the folder of a model that has one")
        try:
            from tokenizers import Tokenizer as Tokenizers  # optional dependency
        except ModuleNotFoundError:
            raise InputError(f"--tokenizer {path}", "needs the package tokenizers, which is missing", INSTALL_COMMAND) from None
        try:
            self.tokenizer = Tokenizers.from_file(str(self.file))
        except Exception as error:  # the package raises plain Exceptions only
            raise FileError(self.file, f"is not a tokenizer: {str(error).partition(chr(10))[0]}") from None
        self.end = self._end()

    def ids(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        """Token ids of each text, without an end token; ``special`` adds the tokenizer's special tokens at the beginning."""
        found = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts), add_special_tokens=special)]
        return [ids[:-1] if special and ids and ids[-1] == self.end else ids for ids in found]

    def chat(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Token ids of a conversation by the chat template; ``add_generation_prompt`` adds the generation prompt, the beginning
        of an answer.
        """
        found = self._templates.apply_chat_template(
            list(messages), tokenize=True, add_generation_prompt=add_generation_prompt, return_dict=False
        )
        return [int(token) for token in found]

    def _end(self) -> int | None:
        try:
            end_token = json.loads(self.file.with_name(CONFIG).read_text(encoding="utf-8")).get("eos_token")
        except (OSError, ValueError, AttributeError):
            return None
        name = end_token.get("content") if isinstance(end_token, dict) else end_token
        token_id: int | None = self.tokenizer.token_to_id(name) if isinstance(name, str) else None
        return token_id

    @cached_property
    def _templates(self) -> Any:
        try:
            from transformers import AutoTokenizer  # optional dependency
        except ModuleNotFoundError:
            raise InputError("messages", "are written by a chat template, which needs transformers", INSTALL_COMMAND) from None
        found = AutoTokenizer.from_pretrained(str(self.file.parent), local_files_only=True)
        if not found.chat_template:
            law = "has no chat template to write messages with"
            raise InputError(f"--tokenizer {self.file.parent}", law, "give lines of prompt and response, or another tokenizer")
        return found
