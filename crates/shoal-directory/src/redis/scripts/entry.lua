local index, claim_ms = ARGV[1], ARGV[2]
return { table.concat(holders_of(index)), claimant_of(index, claim_ms) or '', weight_of(index) }
