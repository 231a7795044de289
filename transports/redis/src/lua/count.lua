-- Answers now, waiting (-1: unknown), in flight, delayed, the id of the oldest that waits; or N.
local t = now()
if kind == 's' then
  if redis.call('EXISTS', main) == 0 then return 'N' end
  local first = redis.call('XRANGE', main, '-', '+', 'COUNT', 1)[1]
  return { t, redis.call('XLEN', main), 0, 0, first and first[1] or '' }
end
local waiting, flying, oldest = 0, 0, ''
local function older(id)
  if id and (oldest == '' or later(oldest, id)) then oldest = id end
end
for s, key in ipairs(streams) do
  local g = known(key)
  if not g then return 'N' end
  local free = 0
  local sum = redis.call('XPENDING', key, group)
  for _, c in ipairs(sum[4] or {}) do
    if c[1] == FREE then free = tonumber(c[2]) end
  end
  local unread
  if private(s) then
    unread = math.max(0, redis.call('XLEN', key) - sum[1])
  else
    unread = g['lag']
  end
  flying = flying + sum[1] - free
  waiting = (unread and waiting >= 0) and waiting + unread + free or -1
  if free > 0 then older(redis.call('XPENDING', key, group, '-', '+', 1, FREE)[1][1]) end
  if unread ~= 0 then
    local first = redis.call('XRANGE', key, '(' .. g['last-delivered-id'], '+', 'COUNT', 1)[1]
    if first then older(first[1]) end
  end
end
return { t, waiting, flying, redis.call('ZCARD', delayed), oldest }
