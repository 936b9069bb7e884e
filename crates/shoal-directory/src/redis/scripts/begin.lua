local fresh, needs_replicas, settling_ms, life_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local change, change_ms = ARGV[5], tonumber(ARGV[6])
local id, is_promoted = server(needs_replicas)
settle(id, fresh, settling_ms, life_ms)
redis.call('HSET', KEYS[1], 't', fresh, 'c' .. change, string.format('%.0f', now() + change_ms))
return is_promoted and string.sub(id, 1, 16) or ''
