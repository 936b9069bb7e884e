-- Sends prepared requests, which already carry their signatures, and prints one line of JSON.
-- REQUESTS names a file of requests separated by NUL. With ONCE set each is sent once and wrk stops after the last answer;
-- it looks for that every 100 ms only, so the time is taken here. With PAUSE_MS set, a connection rests so long before
-- each request.

local ffi = require("ffi")
ffi.cdef([[
   int kill(int pid, int signal);
   int getpid(void);
   struct moment { long seconds; long nanoseconds; };
   int clock_gettime(int clock, struct moment *now);
]])
local SIGINT = 2
local CLOCK_MONOTONIC = 1

local function now()
   local moment = ffi.new("struct moment")
   ffi.C.clock_gettime(CLOCK_MONOTONIC, moment)
   return tonumber(moment.seconds) + tonumber(moment.nanoseconds) / 1e9
end

local once = os.getenv("ONCE") ~= nil
local prepared = {}
for request in io.open(os.getenv("REQUESTS"), "rb"):read("*a"):gmatch("[^%z]+") do
   prepared[#prepared + 1] = request
end

-- wrk asks for one request before the first connection to look at it; that one is not sent.
local sent = -1
local answered = 0

-- Seconds from the first request to the last answer, of the one thread that there is; `done` runs in another state.
took = nil
local began
local only_thread

function setup(thread)
   only_thread = thread
end

function request()
   sent = sent + 1
   if sent == 1 then
      began = now()
   end
   return prepared[math.max(sent - 1, 0) % #prepared + 1]
end

if once then
   local granted = 0

   -- Called before every request. When nothing is left for a connection it waits until the others are done.
   function delay()
      granted = granted + 1
      return granted > #prepared and 3600000 or 0
   end

   function response()
      answered = answered + 1
      if answered == #prepared then
         took = now() - began
         ffi.C.kill(ffi.C.getpid(), SIGINT)
      end
   end
end

local pause_ms = tonumber(os.getenv("PAUSE_MS"))
if pause_ms and not once then
   function delay()
      return pause_ms
   end
end

function done(summary, latency)
   local errors = summary.errors
   io.stdout:write(string.format(
      '\n{"seconds": %.6f, "requests": %d, "bytes": %d, "p50_us": %.0f, "p99_us": %.0f, "bad_statuses": %d, "broken": %d}\n',
      only_thread:get("took") or summary.duration / 1e6, summary.requests, summary.bytes, latency:percentile(50), latency:percentile(99),
      errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
