-- The value is the replication id of the server that set it. A server that takes over has another one: it may
-- have the marker and lack entries that were newer.
local life_ms = ARGV[1]
local told = redis.pcall('INFO', 'replication')
local id = type(told) == 'string' and string.match(told, 'master_replid:(%x+)') or '1'
local is_same = redis.call('GET', KEYS[1]) == id
redis.call('SET', KEYS[1], id, 'PX', life_ms)
return is_same and 1 or 0
