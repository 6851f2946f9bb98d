"""Writes the default model's tokenizer as a Hugging Face folder, which its GGUF file is not: for lm-eval.

Run by the tests, in the environment that has fourstroke: python -m tests.clients.tokenizer FOLDER
"""

import json
import sys
from pathlib import Path

from fourstroke.launch.model_source import default_model
from fourstroke.procs.ingest.load_tokenizer import load_tokenizer


def main() -> None:
    folder = Path(sys.argv[1])
    found = load_tokenizer(str(default_model()))
    found._tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": found.chat_template,
        "clean_up_tokenization_spaces": False,
        **found.special_tokens,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


main()
