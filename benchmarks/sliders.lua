-- People dragging sliders, for wrk: each connection is one of them. A question differs from the one
-- before it as a slider's next step does, and now and then the model or the GPU is another.
local models = {
   "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct", "Qwen/Qwen3-32B",
   "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b",
}
local gpus = { "h100", "h200", "a100", "l40s", "b200", "rtx-4090" }
local rate, users, threads = 300, 200, 0
local numbers = {}

function setup(thread)
   thread:set("number", threads)
   table.insert(numbers, thread)
   threads = threads + 1
end

function init(arguments)
   rate = tonumber(arguments[1]) or rate
   users = tonumber(arguments[2]) or users
   math.randomseed(tonumber(arguments[3]) or 1 + number)
   refused, failed = 0, 0
   model, gpu, context, concurrency = models[1], gpus[1], 8192, 16
end

-- Milliseconds until a user asks again, such that all of them together ask at the rate.
function delay()
   return math.random(0, 2000 * users / rate)
end

local function step(value, least, most)
   return math.max(least, math.min(most, value + math.random(-400, 400)))
end

function request()
   if math.random(10) == 1 then model = models[math.random(#models)] end
   if math.random(10) == 1 then gpu = gpus[math.random(#gpus)] end
   context = step(context, 1024, 40000)
   concurrency = math.max(1, math.min(2048, concurrency + math.random(-8, 9)))
   local count = 2 ^ math.random(0, 3)
   local body = string.format(
      '{"model":"%s","gpu":"%s","gpus":%d,"engine":"vllm","context":%d,"request_tokens":%d,'
         .. '"concurrency":%d,"language":"en"}',
      model, gpu, count, context, context, concurrency)
   return wrk.format("POST", "/v1/fit",
      { ["content-type"] = "application/json", ["accept-encoding"] = "gzip" }, body)
end

function response(status)
   if status ~= 200 then failed = failed + 1 end
end

function done(summary, latency)
   local bad = 0
   for _, thread in ipairs(numbers) do bad = bad + thread:get("failed") end
   local errors = summary.errors
   io.write(string.format(
      '{"requests":%d,"seconds":%.3f,"p50_ms":%.2f,"p95_ms":%.2f,"p99_ms":%.2f,"most_ms":%.2f,'
         .. '"not_200":%d,"socket_errors":%d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
      latency:percentile(95) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3, bad,
      errors.connect + errors.read + errors.write + errors.timeout))
end
