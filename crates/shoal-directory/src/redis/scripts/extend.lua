local name, value, life_ms, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local time = now()
local kept = extensions(time)
if not kept[name] then
  local count = 0
  for _ in pairs(kept) do
    count = count + 1
  end
  if count >= most then
    return 0
  end
end
redis.call('HSET', KEYS[1], name, string.format('%.0f ', time + life_ms) .. value)
if redis.call('PTTL', KEYS[1]) < life_ms then
  redis.call('PEXPIRE', KEYS[1], life_ms)
end
return 1
