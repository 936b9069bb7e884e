-- Sends prepared requests, which already carry their signatures, and prints one line of JSON.
-- REQUESTS names a file of requests separated by NUL. With ONCE set each is sent once and wrk stops after the last answer.

local ffi = require("ffi")
ffi.cdef("int kill(int pid, int signal); int getpid(void);")
local SIGINT = 2

local once = os.getenv("ONCE") ~= nil
local prepared = {}
for request in io.open(os.getenv("REQUESTS"), "rb"):read("*a"):gmatch("[^%z]+") do
   prepared[#prepared + 1] = request
end

-- wrk asks for one request before the first connection to look at it; that one is not sent.
local sent = -1
local answered = 0

function request()
   sent = sent + 1
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
         ffi.C.kill(ffi.C.getpid(), SIGINT)
      end
   end
end

function done(summary, latency)
   local errors = summary.errors
   io.stdout:write(string.format(
      '\n{"seconds": %.6f, "requests": %d, "bytes": %d, "p50_us": %.0f, "p99_us": %.0f, "bad_statuses": %d, "broken": %d}\n',
      summary.duration / 1e6, summary.requests, summary.bytes, latency:percentile(50), latency:percentile(99),
      errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
