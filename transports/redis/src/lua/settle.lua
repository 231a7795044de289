-- ARGV[3]: who; ARGV[4]: until when, by this clock, all of these are surely his; ARGV[5]: how many; each: a (ack), r
-- (retry) or b (release), stream, id, count; a retry also: delay in ms, number of parts, parts.
local me = ARGV[3]
local sure = now() < tonumber(ARGV[4]) and redis.call('HEXISTS', owners, me) == 1
local out, at = {}, 6
local acks, released = { {}, {} }, false

local function over(s, id)
  local n = redis.call('XACK', streams[s], group, id)
  if private(s) then redis.call('XDEL', streams[s], id) end
  return n
end

for i = 1, tonumber(ARGV[5]) do
  local how, s, id, count = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], tonumber(ARGV[at + 3])
  at = at + 4
  if how == 'a' and sure then
    acks[s][#acks[s] + 1] = { i, id }
  else
    local as = standing(me, s, id, count)
    local answer = as == 'O' and 'D' or as
    if how == 'r' then
      local delay, n = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
      -- The copy first: where there is no room for it, the original stays.
      if as == 'O' then answer = put(home, delayed, bodies, delay, at + 2, at + 1 + n) end
      at = at + 2 + n
    end
    if answer == 'D' and how == 'b' then
      redis.call('XCLAIM', streams[s], group, FREE, 0, id, 'RETRYCOUNT', count - 1, 'JUSTID')
      released = true
    elseif answer == 'D' then
      over(s, id)
    end
    out[i] = answer
  end
end

-- Surely his: one call for all of them. What was removed meanwhile has no body left.
for s, list in ipairs(acks) do
  if #list > 0 and private(s) then
    local ids = {}
    for k, ack in ipairs(list) do ids[k] = ack[2] end
    local n = redis.call('XACK', streams[s], group, unpack(ids))
    if n == #ids then
      redis.call('XDEL', streams[s], unpack(ids))
      for _, ack in ipairs(list) do out[ack[1]] = 'D' end
    else
      for _, ack in ipairs(list) do out[ack[1]] = redis.call('XDEL', streams[s], ack[2]) == 1 and 'D' or 'A' end
    end
  else
    for _, ack in ipairs(list) do out[ack[1]] = over(s, ack[2]) == 1 and 'D' or 'A' end
  end
end
if released then ring() end
return out
