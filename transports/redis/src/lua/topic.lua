-- To a topic. KEYS[7]: its groups; ARGV[3]: how many; each: delay, whether a group is required, number of parts, parts.
-- A delayed message is kept once for each group that is there now, and goes to its own stream.
local out, at = {}, 4
local there = redis.call('EXISTS', main) == 1
local groups = redis.call('SMEMBERS', KEYS[7])
for i = 1, tonumber(ARGV[3]) do
  local delay, required, n = tonumber(ARGV[at]), ARGV[at + 1] == '1', tonumber(ARGV[at + 2])
  local from, to = at + 3, at + 2 + n
  if not there then
    out[i] = 'U'
  elseif #groups == 0 then
    out[i] = required and 'G' or 'D'
  elseif delay <= 0 then
    out[i] = put(main, nil, nil, 0, from, to)
  else
    for _, name in ipairs(groups) do
      local base = '{' .. main .. '}:group:' .. name
      out[i] = put(nil, base .. ':delayed', base .. ':bodies', delay, from, to)
      if out[i] ~= 'D' then break end
    end
  end
  at = at + 3 + n
end
return out
