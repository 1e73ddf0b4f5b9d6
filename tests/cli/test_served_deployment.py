"""The deployment of ``simulate``, from its options and from the words of a file."""

import pickle

import pytest

from tokenroom.cli.served_deployment import parsed_words, served_deployment
from tokenroom.errors import CommandLineError
from tokenroom.execution.canonical import digest
from tokenroom.reports.messages import Language
from tokenroom.serving.served_deployment import ServedDeployment


def written(*words: str) -> ServedDeployment:
    options = parsed_words(words)
    return served_deployment(options.pop("words"), options, Language.ENGLISH)


def test_words_of_a_file_are_those_of_the_command_line() -> None:
    found = written(
        "llama-3-8b", "--gpu", "a100", "--scheduling-policy", "priority", "--price", "2"
    )
    assert found.fit.deployment.spec.name == "meta-llama/Meta-Llama-3-8B"
    assert (found.scheduling, found.price_per_gpu_hour) == ({"scheduling_policy": "priority"}, 2)
    command = written("--gpu", "a100", "--", "vllm", "serve", "llama-3-8b", "--block-size", "32")
    assert command.fit.deployment.resolved.block_size == 32


def test_words_that_are_no_deployment_are_refused() -> None:
    with pytest.raises(CommandLineError, match="deployment llama-3-8b --gpuu x cannot be read"):
        written("llama-3-8b", "--gpuu", "x")
    with pytest.raises(CommandLineError, match="--trace"):
        written("llama-3-8b", "--gpu", "a100", "--trace", "x")


def test_it_can_be_sent_and_is_named_by_what_it_is() -> None:
    words = ("llama-3-8b", "--gpu", "a100")
    found = written(*words)
    sent = pickle.loads(pickle.dumps(found))
    assert digest(sent.identity()) == digest(found.identity())
    assert sent.run().engine.config == found.run().engine.config
    for others in (("--price", "1"), ("--kv", "fp8"), ("--scheduling-policy", "priority")):
        assert digest(written(*words, *others).identity()) != digest(found.identity())
