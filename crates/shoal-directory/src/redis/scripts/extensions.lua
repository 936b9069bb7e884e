local answer = {}
for name, value in pairs(extensions(now())) do
  answer[#answer + 1] = { name, value }
end
return answer
