local index, me, claim_ms, life_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local uncounted = { [me] = true }
for at = 5, #ARGV do
  uncounted[ARGV[at]] = true
end
local others = {}
for _, holder in ipairs(holders_of(index)) do
  if not uncounted[holder] then
    others[#others + 1] = holder
  end
end
if #others > 0 then
  return 'h' .. table.concat(others)
end
local claimant = claimant_of(index, claim_ms)
if claimant and not uncounted[claimant] then
  return 'c' .. claimant
end
redis.call('HSET', KEYS[1], 'c' .. index, me .. string.format('%d', now() + claim_ms))
redis.call('PEXPIRE', KEYS[1], life_ms)
return 'y'
