local index, me, steal_from, claim_ms, life_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local others = without(holders_of(index), me)
if #others > 0 then
  return 'h' .. table.concat(others)
end
local claimant = claimant_of(index, claim_ms)
if claimant and claimant ~= me and claimant ~= steal_from then
  return 'c' .. claimant
end
redis.call('HSET', KEYS[1], 'c' .. index, me .. string.format('%d', now() + claim_ms))
redis.call('PEXPIRE', KEYS[1], life_ms)
return 'y'
