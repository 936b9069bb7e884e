-- Parts of the scripts about names.

-- Returns the milliseconds since 1970, by this server.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the replication id of this server, which changes when it starts or is promoted, and whether it had
-- another one before. `needs_replicas` is '1' where another server may be promoted while this one still answers:
-- it must then be set to refuse writes once its replicas are gone.
local function server(needs_replicas)
  local told = redis.call('INFO', 'replication')
  local id = string.match(told, 'master_replid:(%x+)')
  local before = string.match(told, 'master_replid2:(%x+)')
  if not id or not before then
    error('the server has no replication id')
  end
  if needs_replicas == '1' and not string.find(told, 'min_slaves_good_slaves') then
    error('min-replicas-to-write is not set, so a server that was replaced might answer on')
  end
  return id, string.find(before, '[^0]') ~= nil
end

-- Returns whether a change of the name KEYS[1] may be under way, and its token. A name that this server, as it is
-- now, does not know gets the token `fresh` and is unsettled for settling_ms.
local function settle(id, fresh, settling_ms, life_ms)
  local time, fields, known = now(), redis.call('HGETALL', KEYS[1]), {}
  for at = 1, #fields, 2 do
    known[fields[at]] = fields[at + 1]
  end
  local settled_at = tonumber(known.s)
  -- A time too far ahead is that of another clock.
  if known.r ~= id or not known.t or not settled_at or settled_at > time + settling_ms then
    redis.call('DEL', KEYS[1])
    known = { t = fresh, r = id, s = string.format('%.0f', time + settling_ms) }
    redis.call('HSET', KEYS[1], 't', known.t, 'r', known.r, 's', known.s)
    settled_at = time + settling_ms
  end
  local changes = settled_at > time
  for field, value in pairs(known) do
    if string.sub(field, 1, 1) == 'c' then
      local until_ms = tonumber(value)
      if until_ms and until_ms > time then
        changes = true
      else
        redis.call('HDEL', KEYS[1], field)
      end
    end
  end
  redis.call('PEXPIRE', KEYS[1], life_ms)
  return changes, known.t
end
