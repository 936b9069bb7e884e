local fresh, needs_replicas, settling_ms, life_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local id = server(needs_replicas)
local changes, token = settle(id, fresh, settling_ms, life_ms)
return changes and '' or token
