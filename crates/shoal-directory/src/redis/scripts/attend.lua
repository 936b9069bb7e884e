-- KEYS[1] is the hash of all nodes that are present. A field holds when the node said so, a space, and its rules.
local me, rules, at_ms, life_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local time = now()
local function said_at(field)
  local said = field and tonumber(string.match(field, '^(%d+) '))
  -- A time to come was told to a server with another clock.
  return said and said <= time and said or nil
end
if at_ms then
  at_ms = math.min(at_ms, time)
  if (said_at(redis.call('HGET', KEYS[1], me)) or 0) <= at_ms then
    redis.call('HSET', KEYS[1], me, string.format('%.0f ', at_ms) .. rules)
    redis.call('PEXPIRE', KEYS[1], life_ms)
  end
end
local fields, present = redis.call('HGETALL', KEYS[1]), {}
for index = 1, #fields, 2 do
  local said = said_at(fields[index + 1])
  if said and said > time - life_ms then
    present[#present + 1] = { fields[index], string.match(fields[index + 1], ' (%x+)$') or '0' }
  else
    redis.call('HDEL', KEYS[1], fields[index])
  end
end
return { time, present }
