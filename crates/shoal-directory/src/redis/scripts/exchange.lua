-- KEYS[1] is the hash of all nodes. A field holds the time, a space, and what the node told.
local me, told, life_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = now()
redis.call('HSET', KEYS[1], me, string.format('%.0f ', time) .. told)
redis.call('PEXPIRE', KEYS[1], life_ms)
local fields, states = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #fields, 2 do
  local told_at, state = string.match(fields[at + 1], '^(%d+) (.*)$')
  -- A time to come was told to a server with another clock.
  if told_at and tonumber(told_at) > time - life_ms and tonumber(told_at) <= time then
    states[#states + 1] = { fields[at], state }
  else
    redis.call('HDEL', KEYS[1], fields[at])
  end
end
return states
