local me, answers = ARGV[1], {}
for at = 2, #ARGV, 2 do
  local index = ARGV[at]
  local others = without(holders_of(index), me)
  if #others > 0 then
    set_holders(index, others)
    set_weight(index, weight_of(index) + tonumber(ARGV[at + 1]))
    answers[#answers + 1] = -1
  else
    answers[#answers + 1] = weight_of(index)
  end
end
return { answers, elsewhere(me) }
