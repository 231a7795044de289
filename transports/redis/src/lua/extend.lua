-- ARGV[3]: who; ARGV[4]: how many; each: stream, id, count. Owner and count are checked first: a claim alone would take
-- the message back from another.
local out, at = {}, 5
for i = 1, tonumber(ARGV[4]) do
  local s, id, count = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  out[i] = 'L'
  if standing(ARGV[3], s, id, count) == 'O'
    and #redis.call('XCLAIM', streams[s], group, ARGV[3], 0, id, 'JUSTID') == 1 then
    out[i] = 'D'
  end
  at = at + 3
end
return out
