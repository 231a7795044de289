-- To a queue or to one group. ARGV[3]: how many; each: delay in ms, number of parts, parts. Answers one text each.
local out, at = {}, 4
local there = redis.call('EXISTS', home) == 1
for i = 1, tonumber(ARGV[3]) do
  local delay, n = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  out[i] = there and put(home, delayed, bodies, delay, at + 2, at + 1 + n) or 'U'
  at = at + 2 + n
end
return out
